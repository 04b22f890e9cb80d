from sklearn.base import BaseEstimator
from sklearn.callback import CallbackSupportMixin, with_callbacks

from skicml.utils._progress import fit_steps


class _Recorder:
    def __init__(self, stop_at=None):
        self.stop_at = stop_at
        self.events = []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        self.events.append(("begin", context.task_name))

    def on_fit_task_end(self, estimator, context):
        self.events.append(("end", context.task_name))
        return context.task_name == self.stop_at


class _Loop(CallbackSupportMixin, BaseEstimator):
    def __init__(self, break_at=None):
        self.break_at = break_at

    @with_callbacks
    def fit(self):
        context = self._init_callback_context(max_subtasks=4)
        self.steps_ = []
        for step in fit_steps(context, self, 4, "step"):
            self.steps_.append(step)
            if step == self.break_at:
                break
        return self


def _events(n_steps):
    return [(kind, f"step {i}") for i in range(n_steps) for kind in ("begin", "end")]


def test_every_step_is_a_task():
    recorder = _Recorder()
    assert _Loop().set_callbacks(recorder).fit().steps_ == [0, 1, 2, 3]
    assert recorder.events == _events(4)


def test_a_callback_ends_the_loop():
    recorder = _Recorder(stop_at="step 1")
    assert _Loop().set_callbacks(recorder).fit().steps_ == [0, 1]
    assert recorder.events == _events(2)


def test_a_break_still_ends_its_task():
    recorder = _Recorder()
    assert _Loop(break_at=2).set_callbacks(recorder).fit().steps_ == [0, 1, 2]
    assert recorder.events == _events(3)
