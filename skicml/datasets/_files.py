"""Find the files of real data sets: in the wheel, or in the folder SKICML_DATA."""

import os
from importlib import resources
from pathlib import Path


def bundled_file(name):
    """Path of a file that the wheel brings."""
    return resources.files("skicml.datasets") / "data" / name


def external_file(name, source):
    """Path of a file in the folder that the environment variable SKICML_DATA names.

    Parameters
    ----------
    name : str
        Path of the file inside that folder.
    source : str
        Where the data come from, for the error message.

    Raises
    ------
    OSError
        If the variable is not set or the file is not there; the message says what to do.
    """
    folder = os.environ.get("SKICML_DATA")
    if not folder:
        raise OSError(
            f"{name} is not part of the package. Set the environment variable SKICML_DATA to a "
            f"folder that holds {name} (source: {source})."
        )
    path = Path(folder) / name
    if not path.is_file():
        raise OSError(
            f"There is no file {name} in the folder {folder} that SKICML_DATA names "
            f"(source: {source})."
        )
    return path
