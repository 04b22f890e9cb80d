"""Action sets: closed forms, duality, agreement between descriptions of one set, bad input."""

import numpy as np
import pytest
from scipy.optimize import OptimizeResult, linprog, minimize

from skicml.bandits import _action_sets
from skicml.bandits._action_sets import (
    Ball,
    Box,
    FiniteTable,
    Polytope,
    Simplex,
    infer_dimension,
    make_action_set,
)

NO_ROWS = np.empty((0, 3)), np.empty(0)
TRIANGLE = Polytope(np.array([[1.0, 1], [-1, 0], [0, -1]]), np.array([1.0, 0, 0]))


def unit_box(d):
    return Box(-np.ones(d), np.ones(d))


def make(action_set, n_features=2, bounds=(-1, 1), ball_radius=1.0):
    return make_action_set(action_set, n_features, bounds=bounds, ball_radius=ball_radius)


def convex_sets(d):
    """One set of each convex kind that contains the simplex or touches it."""
    return [
        unit_box(d),
        Simplex(d),
        Ball(d, 1.5),
        Polytope(np.vstack([np.eye(d), -np.eye(d), np.ones((1, d))]), np.append(np.ones(2 * d), 1)),
    ]


def random_problem(seed, d=3, offset=1.0):
    rng = np.random.RandomState(seed)
    m = rng.randint(1, 9)
    return rng.standard_normal((m, d)), offset * rng.standard_normal(m), rng.standard_normal(d)


# --------------------------------------------------------------------------------------
# Maximin


def test_rock_paper_scissors():
    game = np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    play = Simplex(3).maximin(game, np.zeros(3))
    assert play.value == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(play.action, 1 / 3, atol=1e-9)


def test_one_row_is_the_support_function():
    w = np.array([3.0, -4.0, 0.0])
    cases = [(unit_box(3), 7.0), (Ball(3, 2.0), 10.0), (Simplex(3), 3.0)]
    for actions, support in cases:
        play = actions.maximin(w[None], np.array([0.5]))
        assert play.value == pytest.approx(support + 0.5, abs=1e-7)
        assert w @ play.action == pytest.approx(support, abs=1e-7)


def test_orthonormal_rows_on_the_ball():
    play = Ball(4, 2.0).maximin(np.eye(4)[:3], np.zeros(3))
    assert play.value == pytest.approx(2 / np.sqrt(3))
    np.testing.assert_allclose(play.action, np.append(np.full(3, 2 / np.sqrt(3)), 0), atol=1e-7)


def test_ball_plays_zero_when_zero_is_in_the_hull_of_the_rows():
    play = Ball(2, 1.0).maximin(np.array([[1.0, 0], [-1, 0.5], [-1, -0.5]]), np.zeros(3))
    assert play.value == pytest.approx(0, abs=1e-8)
    assert np.linalg.norm(play.action) <= 1.0


def test_ball_with_offsets_may_have_its_optimum_inside():
    # min(a + 1, 2 - a) is largest at a = 1/2
    play = Ball(1, 5.0).maximin(np.array([[1.0], [-1.0]]), np.array([1.0, 2.0]))
    assert play.value == pytest.approx(1.5)
    assert play.action[0] == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("offset", [0.0, 0.1, 5.0])
def test_value_has_a_primal_and_a_dual_witness_on_the_ball(seed, offset):
    """The action reaches the value, and a mixture of rows proves that none does better."""
    W, c, _ = random_problem(seed, offset=offset)
    ball = Ball(3, 1.5)
    play = ball.maximin(W, c)
    assert ball.contains(play.action)
    assert (W @ play.action + c).min() == pytest.approx(play.value, abs=1e-7)
    m = len(W)

    def bound(pi):
        return 1.5 * np.linalg.norm(pi @ W) + c @ pi

    best = min(
        minimize(
            bound,
            start,
            bounds=[(0, 1)] * m,
            constraints={"type": "eq", "fun": lambda pi: pi.sum() - 1},
        ).fun
        for start in np.vstack([np.eye(m), np.full((1, m), 1 / m)])
    )
    assert best >= play.value - 1e-7  # weak duality
    assert best <= play.value + 1e-3 * (1 + abs(play.value))


@pytest.mark.parametrize("seed", range(5))
def test_simplex_game_has_the_value_of_its_dual(seed):
    W, c, _ = random_problem(seed)
    m = len(W)
    # the row player minimises v with W^T pi + c . pi <= v
    dual = linprog(
        np.append(np.zeros(m), 1.0),
        A_ub=np.hstack([(W + c[:, None]).T, -np.ones((3, 1))]),
        b_ub=np.zeros(3),
        A_eq=[np.append(np.ones(m), 0.0)],
        b_eq=[1.0],
        bounds=[(0, None)] * m + [(None, None)],
    )
    assert Simplex(3).maximin(W, c).value == pytest.approx(dual.fun, abs=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_no_sampled_action_beats_the_maximin_action(seed):
    W, c, _ = random_problem(seed)
    sample = np.random.RandomState(seed).dirichlet(np.ones(3), 2000)
    for actions in convex_sets(3):
        play = actions.maximin(W, c)
        assert actions.contains(play.action)
        assert (W @ play.action + c).min() == pytest.approx(play.value, abs=1e-7)
        inside = [a for a in sample if actions.contains(a)]
        assert len(inside) > 100
        assert (np.array(inside) @ W.T + c).min(axis=1).max() <= play.value + 1e-8


# --------------------------------------------------------------------------------------
# Linear objective under constraints


def test_linear_objective_without_rows():
    w = np.array([2.0, -1.0, 0.5])
    np.testing.assert_allclose(unit_box(3).linear(w, *NO_ROWS).action, [1, -1, 1])
    np.testing.assert_allclose(Simplex(3).linear(w, *NO_ROWS).action, [1, 0, 0])
    np.testing.assert_allclose(Ball(3, 2.0).linear(w, *NO_ROWS).action, 2 * w / np.linalg.norm(w))


def test_linear_objective_on_the_disc_cut_by_a_line():
    # maximise a_1 with a_1 <= 1/2 a_2 on the unit disc: on the line and on the circle
    play = Ball(2, 1.0).linear(np.array([1.0, 0]), np.array([[-1.0, 0.5]]), np.zeros(1))
    np.testing.assert_allclose(play.action, np.array([1, 2]) / np.sqrt(5), atol=1e-6)
    assert play.value == pytest.approx(1 / np.sqrt(5))


@pytest.mark.parametrize("seed", range(30))
def test_linear_objective_agrees_with_a_general_solver_on_the_ball(seed):
    W, c, w = random_problem(seed)
    play = Ball(3, 1.5).linear(w, W, c)
    if play is None:
        assert Ball(3, 1.5).maximin(W, c).value <= 1e-8
        return
    assert (W @ play.action + c).min() >= -1e-7
    assert play.value == pytest.approx(w @ play.action, abs=1e-6)
    found = minimize(
        lambda a: -w @ a,
        play.action * 0.5,
        jac=lambda a: -w,
        method="SLSQP",
        constraints=[
            {"type": "ineq", "fun": lambda a: W @ a + c},
            {"type": "ineq", "fun": lambda a: 1.5**2 - a @ a},
        ],
    )
    if found.success:
        assert -found.fun <= play.value + 1e-5


def test_linear_objective_without_a_feasible_action():
    W, c = np.array([[1.0, 0, 0], [-1.0, 0, 0]]), np.array([-0.6, 0.5])  # a >= .6 and a <= .5
    for actions in [*convex_sets(3), FiniteTable(np.eye(3))]:
        assert actions.linear(np.ones(3), W, c) is None


def test_constraints_may_hold_with_nothing_to_spare():
    W, c = np.array([[1.0, 0, 0], [-1.0, 0, 0]]), np.array([-0.5, 0.5])  # a_1 = .5
    for actions in convex_sets(3):
        play = actions.linear(np.array([0.0, 1.0, 0.0]), W, c)
        assert play.action[0] == pytest.approx(0.5, abs=1e-6)


# --------------------------------------------------------------------------------------
# One set, several descriptions


@pytest.mark.parametrize("seed", range(5))
def test_polytopes_agree_with_box_and_simplex(seed):
    W, c, w = random_problem(seed, offset=0.3)
    eye, one = np.eye(3), np.ones((1, 3))
    pairs = [
        (unit_box(3), Polytope(np.vstack([eye, -eye]), np.ones(6))),
        (Simplex(3), Polytope(np.vstack([-eye, one, -one]), np.array([0, 0, 0, 1, -1.0]))),
    ]
    for named, polytope in pairs:
        assert named.maximin(W, c).value == pytest.approx(polytope.maximin(W, c).value, abs=1e-8)
        left, right = named.linear(w, W, c), polytope.linear(w, W, c)
        assert (left is None) == (right is None)
        if left is not None:
            assert left.value == pytest.approx(right.value, abs=1e-8)


def test_a_program_may_change_its_number_of_rows():
    box = unit_box(3)
    for seed in (0, 1, 0, 2):
        W, c, _ = random_problem(seed)
        assert box.maximin(W, c).value == pytest.approx(unit_box(3).maximin(W, c).value, abs=1e-9)


def test_numerical_trouble_of_the_solver_is_met_by_its_safer_defaults(monkeypatch):
    calls = []

    def trouble_without_presolve(**program):
        calls.append("options" in program)
        if "options" in program:
            return OptimizeResult(status=4, x=None, message="numerical difficulties")
        return linprog(**program)

    monkeypatch.setattr(_action_sets, "linprog", trouble_without_presolve)
    play = unit_box(2).maximin(np.eye(2), np.zeros(2))
    assert play.value == pytest.approx(1.0)
    assert calls == [True, False]
    monkeypatch.setattr(
        _action_sets,
        "linprog",
        lambda **program: OptimizeResult(status=4, x=None, message="numerical difficulties"),
    )
    with pytest.raises(RuntimeError, match="numerical difficulties"):
        unit_box(2).maximin(np.eye(2), np.zeros(2))


def test_table_is_searched_row_by_row():
    rng = np.random.RandomState(0)
    table = FiniteTable(rng.standard_normal((50, 3)))
    W, c, w = random_problem(3)
    margins = (table.actions @ W.T + c).min(axis=1)
    play = table.maximin(W, c)
    assert play.index == margins.argmax()
    assert play.value == pytest.approx(margins.max())
    best = table.linear(w, W, c)
    allowed = np.flatnonzero(margins >= 0)
    assert best.index == allowed[(table.actions[allowed] @ w).argmax()]


def test_ties_in_a_table_are_broken_at_random():
    table = FiniteTable(np.array([[1.0, 0], [1.0, 0], [0.0, 1], [1.0, 0]]))
    W, c = np.array([[1.0, 0.0]]), np.zeros(1)
    assert table.maximin(W, c).index == 0
    rng = np.random.RandomState(0)
    drawn = [table.maximin(W, c, rng).index for _ in range(300)]
    counts = np.bincount(drawn, minlength=4)
    assert counts[2] == 0
    assert counts[[0, 1, 3]].min() > 60


def test_table_does_not_change_with_the_array_that_it_was_made_from():
    X = np.eye(2)
    table = FiniteTable(X)
    X[:] = 7
    np.testing.assert_array_equal(table.actions, np.eye(2))


# --------------------------------------------------------------------------------------
# Membership


@pytest.mark.parametrize(
    ("actions", "inside", "outside"),
    [
        (unit_box(2), [1, -1], [1 + 1e-6, 0]),
        (Simplex(2), [0.3, 0.7], [0.3, 0.7001]),
        (Simplex(2), [0, 1], [-1e-6, 1 + 1e-6]),
        (Ball(2, 5.0), [3, 4], [3, 4.0001]),
        (
            Polytope(np.array([[1.0, 1], [-1, 0], [0, -1]]), np.array([1.0, 0, 0])),
            [0.5, 0.5],
            [1, 1],
        ),
        (FiniteTable(np.eye(2)), [0, 1], [0.5, 0.5]),
    ],
)
def test_membership(actions, inside, outside):
    assert actions.contains(np.array(inside, dtype=float))
    assert actions.contains(np.array(inside, dtype=float) + 1e-9 * np.array([1, -1]))
    assert not actions.contains(np.array(outside, dtype=float))


# --------------------------------------------------------------------------------------
# Descriptions by parameters


def test_sets_from_parameters():
    assert isinstance(make("box"), Box)
    assert isinstance(make("simplex"), Simplex)
    assert make("ball", ball_radius=3).radius == 3
    assert isinstance(make(([[1.0, 0], [-1, 0], [0, 1], [0, -1]], [1.0, 1, 1, 1])), Polytope)
    assert isinstance(make([[1.0, 0], [0, 1], [1, 1]]), FiniteTable)
    assert isinstance(make([[1.0, 0], [0, 1]]), FiniteTable)  # two rows are no polytope


@pytest.mark.parametrize(
    ("action_set", "bounds", "dimension"),
    [
        ("box", (-1, 1), None),
        ("box", ([-1, -1, -1], 1), 3),
        ("box", (0, [1, 2]), 2),
        ("ball", (-1, 1), None),
        ("simplex", (-1, 1), None),
        (([[1.0, 0], [-1, 0], [0, 1], [0, -1]], [1.0, 1, 1, 1]), (-1, 1), 2),
        (np.ones((5, 4)), (-1, 1), 4),
    ],
)
def test_dimension_from_parameters(action_set, bounds, dimension):
    assert infer_dimension(action_set, bounds) == dimension


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"action_set": "finite"}, "table of actions"),
        ({"action_set": "box", "bounds": (-1, np.inf)}, "not bounded"),
        ({"action_set": "box", "bounds": (1, -1)}, "empty.*bounds"),
        ({"action_set": "box", "bounds": (1, 2, 3)}, "bounds must be a pair"),
        ({"action_set": "box", "bounds": ("a", "b")}, "bounds must be a pair"),
        ({"action_set": "box", "bounds": ([0, 0], [1, 1, 1])}, "bounds must hold"),
        ({"action_set": "box", "bounds": ([0, 0, 0], 1)}, "dimension 3.*n_features=2"),
        ({"action_set": ([[1.0, 0]], [1.0])}, "not bounded"),
        ({"action_set": ([[1.0, 0], [-1, 0], [0, 1], [0, -1]], [-1.0, -1, 1, 1])}, "empty"),
        ({"action_set": ([[1.0, 0]], [1.0, 2.0])}, r"shapes \(k, d\) and \(k,\)"),
        ({"action_set": ([[np.nan, 0]], [1.0])}, "NaN"),
        ({"action_set": [[np.inf, 0], [0, 1], [1, 1]]}, "NaN or infinity"),
        ({"action_set": [1.0, 2.0, 3.0]}, "2-D table"),
        ({"action_set": [[1.0, "x"], [0, 1]]}, "arrays of numbers"),
        ({"action_set": np.eye(3)}, "dimension 3.*n_features=2"),
    ],
)
def test_bad_descriptions(arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)
