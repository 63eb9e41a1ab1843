import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from emi.report.first_reward import (
    FirstReward,
    first_reward,
    median_first_reward,
    share_with_reward,
)

examples = settings(max_examples=60, deadline=None, derandomize=True, database=None)
runs = st.lists(
    st.builds(FirstReward, st.integers(1, 12).map(float), st.booleans()), min_size=1, max_size=15
)

# Weeks in remission of 42 patients (Freireich et al. 1963): the standard example of survival
# analysis. With the drug 12 of 21 were still well when last seen.
DRUG = [FirstReward(t, True) for t in (6, 6, 6, 7, 10, 13, 16, 22, 23)]
DRUG += [FirstReward(t, False) for t in (6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35)]
PLACEBO = [
    FirstReward(t, True)
    for t in (1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23)
]


def test_first_reward_of_a_run() -> None:
    steps = np.array([5_000.0, 10_000.0, 15_000.0, 20_000.0])
    assert first_reward(steps, np.array([0.0, 0.0, 3.0, 0.0])) == (15_000, True)
    assert first_reward(steps, np.array([1.0, 0.0, 3.0, 0.0])) == (5_000, True)
    assert first_reward(steps, np.array([0.0, -1.0, 0.0, 0.0])) == (20_000, False)
    assert first_reward(steps, np.array([math.nan, math.nan, math.nan, 2.0])) == (20_000, True)
    assert first_reward(steps, np.full(4, math.nan)) == (20_000, False)


@pytest.mark.parametrize(("steps", "returns"), [([], []), ([5.0, 10.0], [0.0])])
def test_first_reward_refuses_a_run_without_rows(steps: list[float], returns: list[float]) -> None:
    with pytest.raises(ValueError, match="as many returns as step counts and at least one"):
        first_reward(np.array(steps), np.array(returns))


def test_kaplan_and_meier_on_the_standard_example() -> None:
    steps, share = share_with_reward(DRUG)
    well = dict(zip(steps.tolist(), 1 - share, strict=True))
    published = {0: 1, 6: 0.857, 7: 0.807, 10: 0.753, 13: 0.690, 16: 0.627, 22: 0.538, 23: 0.448}
    assert {t: well[t] for t in published} == pytest.approx(published, abs=5e-4)
    assert well[9] == well[7]  # patients who leave do not change the estimate
    assert well[35] == well[23]
    assert steps[-1] == 35
    assert median_first_reward(DRUG) == 23
    assert median_first_reward(PLACEBO) == 8


def test_an_unfinished_run_counts_for_as_long_as_it_lasted() -> None:
    # 1/4 at 10; the run that ended at 15 leaves two, one of which is rewarded at 20:
    # 1 - 3/4 × 1/2. Counted as a failure it would be 2/4, left out 2/3.
    first = [
        FirstReward(10, True),
        FirstReward(15, False),
        FirstReward(20, True),
        FirstReward(30, False),
    ]
    steps, share = share_with_reward(first)
    assert steps.tolist() == [0, 10, 15, 20, 30]
    assert share.tolist() == [0, 0.25, 0.25, 0.625, 0.625]
    assert median_first_reward(first) == 20


def test_without_unfinished_runs_the_share_is_a_plain_count() -> None:
    steps, share = share_with_reward([FirstReward(t, True) for t in (30, 10, 10, 20)])
    assert steps.tolist() == [0, 10, 20, 30]
    assert share.tolist() == [0, 0.5, 0.75, 1]


@pytest.mark.parametrize("n", range(1, 60))
def test_half_is_exactly_half(n: int) -> None:
    # A product of floats such as 9/10 · 8/9 · … misses 1/2 by a rounding error.
    first = [FirstReward(k + 1, True) for k in range(n)] + [FirstReward(n + 1, False)] * n
    assert median_first_reward(first) == n
    assert median_first_reward([*first, FirstReward(n + 1, False)]) == math.inf


def test_no_reward_at_all() -> None:
    first = [FirstReward(5_000_000, False)] * 5
    steps, share = share_with_reward(first)
    assert steps.tolist() == [0, 5_000_000]
    assert share.tolist() == [0, 0]
    assert median_first_reward(first) == math.inf
    for function in (share_with_reward, median_first_reward):
        with pytest.raises(ValueError, match="at least one run"):
            function([])


@examples
@given(runs)
def test_kaplan_and_meier_against_scipy(first: list[FirstReward]) -> None:
    steps, share = share_with_reward(first)
    assert (steps[0], share[0]) == (0, 0)
    assert (np.diff(steps) > 0).all()
    assert (np.diff(share) >= 0).all()
    assert share[-1] <= 1
    seen = [run.steps for run in first if run.seen]
    unseen = [run.steps for run in first if not run.seen]
    if seen:
        reference = stats.ecdf(stats.CensoredData(uncensored=seen, right=unseen)).cdf
        assert share == pytest.approx(reference.evaluate(steps), abs=1e-12)
    half = steps[share >= 0.5 - 1e-12]
    assert median_first_reward(first) == (half[0] if len(half) else math.inf)
