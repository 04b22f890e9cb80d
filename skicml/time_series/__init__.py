"""Time series: anomaly detection, forecasts in continuous time, spectra and imputation."""

__all__ = []
