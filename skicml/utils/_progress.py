"""Report the parts of a fit to scikit-learn's callbacks."""

from contextlib import nullcontext


def fit_steps(context, estimator, n_steps, name, **hook_arguments):
    """Iterate over the steps of a fit, one scikit-learn callback task each.

    The loop ends early when a callback asks for it, so the body of the ``for`` statement
    needs no callback code of its own.

    Parameters
    ----------
    context : sklearn.callback.CallbackContext
        The task that the steps belong to; its ``max_subtasks`` must be at least `n_steps`.
    estimator : estimator instance
        The estimator being fitted.
    n_steps : int
        Number of steps.
    name : str
        What a step is, e.g. ``"iteration"``.
    **hook_arguments : dict
        Passed to the hooks: ``X``, ``y``, ``reconstruction_attributes``, ...

    Yields
    ------
    step : int
        Index of the step.
    """
    for step in range(n_steps):
        task = context.subcontext(task_name=f"{name} {step}")
        task.call_on_fit_task_begin(estimator=estimator, **hook_arguments)
        try:
            yield step
        except (
            GeneratorExit
        ):  # the body left the loop with `break`: its step has ended all the same
            task.call_on_fit_task_end(estimator=estimator, **hook_arguments)
            raise
        if task.call_on_fit_task_end(estimator=estimator, **hook_arguments):
            return


def fit_as_task(part, X, y, estimator, context):
    """Fit a nested estimator as one callback task, that it reports its own steps to.

    Parameters
    ----------
    part : estimator instance
        The nested estimator.
    X, y : array-like
        What to fit it to; `y` may be None.
    estimator : estimator instance
        The estimator being fitted.
    context : sklearn.callback.CallbackContext
        The task.

    Returns
    -------
    part : estimator instance
        The same nested estimator.
    """
    reports = hasattr(part, "set_callbacks")
    with context.propagate_callback_context(part) if reports else nullcontext():
        context.call_on_fit_task_begin(estimator=estimator, X=X, y=y)
        part.fit(X, y)
    context.call_on_fit_task_end(estimator=estimator, X=X, y=y)
    return part
