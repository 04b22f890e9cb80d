"""Report the steps of an iterative fit to scikit-learn's callbacks."""


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
