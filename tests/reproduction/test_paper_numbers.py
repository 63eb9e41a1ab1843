"""The paper's numbers as literals, and drawings of runs whose numbers are known."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from results_tree import write_arm
from scipy import stats

from emi.envs import ENVIRONMENTS
from emi.errors import UserError
from emi.reproduction import (
    ablation,
    coefficient_search,
    emi_d_coefficient,
    emi_d_comparison,
    locomotion_curves,
    loss_convergence,
    open_choices,
    performance_profile,
    statistical_tests,
    table_1,
)
from emi.reproduction.catalogue import EXPERIMENTS
from emi.reproduction.experiment import Arm, find, seed_text
from emi.reproduction.paper_values import PAPER
from emi.reproduction.tasks import task
from emi.training.presets import resolve


def page(stem: Path) -> str:
    return stem.with_name(f"{stem.name}.md").read_text(encoding="utf-8")


def test_the_grid_is_the_papers() -> None:
    by_env = {arm.env: arm for arm in table_1.EXPERIMENT.arms}
    assert {env: arm.steps for env, arm in by_env.items()} == {
        "SwimmerGather": 100_000_000,
        "SparseHalfCheetah": 5_000_000,
        **dict.fromkeys(
            ("Freeway", "Frostbite", "Venture", "Gravitar", "Solaris", "MontezumaRevenge"),
            50_000_000,
        ),
    }
    assert {arm.seeds for arm in by_env.values()} == {(0, 1, 2, 3, 4)}
    assert {arm.folder for arm in by_env.values()} == {
        "swimmer_gather",
        "sparse_half_cheetah",
        "atari",
    }
    # Columns of Table 1 that hold a number, one arm each.
    assert len(table_1.EXPERIMENT.arms) == 2 * 7 + 6 * 6


def test_every_setting_of_every_grid_is_one_of_the_config() -> None:
    arms = {arm for experiment in EXPERIMENTS for arm in experiment.arms}
    assert len(arms) > 80
    for arm in arms:
        config = resolve(arm.env, arm.method, words=arm.settings, name=arm.preset)
        assert config.method == arm.method


def test_two_arms_never_share_a_run_directory_unless_they_are_the_same_run() -> None:
    owners: dict[Path, object] = {}
    for arm in {arm for e in EXPERIMENTS for arm in e.arms if not arm.past}:
        config = resolve(arm.env, arm.method, words=arm.settings, name=arm.preset)
        for seed in arm.seeds:
            place = arm.path(Path(), seed)
            assert owners.setdefault(place, (config, arm.steps)) == (config, arm.steps), place


def test_the_study_of_emi_ds_coefficient_has_the_papers_value_among_four() -> None:
    arms = emi_d_coefficient.EXPERIMENT.arms
    assert [arm.title for arm in arms] == ["α = 0.001", "α = 0.01", "α = 0.1", "α = 1"]
    etas = [resolve(g.env, g.method, words=g.settings).eta for g in arms]
    assert etas == [0.001, 0.01, 0.1, 1.0]
    # 0.1 is the preset: its runs are those of the comparison.
    assert arms[2].folder == "sparse_half_cheetah"
    assert resolve("SparseHalfCheetah", "emi-d").eta == 0.1


def test_supplementary_section_6() -> None:
    assert statistical_tests.PAPERS == {
        "icm": (8.58, 2.99e-7),
        "rnd": (8.57, 2.96e-7),
        "ex2": (1.81, 0.0410),
    }
    assert [arm.method for arm in statistical_tests.EXPERIMENT.arms] == [
        "emi",
        "icm",
        "rnd",
        "ex2",
    ]
    assert all(len(arm.seeds) == 15 for arm in statistical_tests.EXPERIMENT.arms)
    # The p-values are one-sided. Where the other method has hardly any spread there are 14 degrees
    # of freedom, against EX2 at most 28.
    assert stats.t.sf(8.58, 14) == pytest.approx(2.99e-7, rel=0.02)
    assert stats.t.sf(1.81, 26) == pytest.approx(0.0410, rel=0.01)
    assert 2 * stats.t.sf(1.81, 28) > 0.08


def test_seeds_on_which_settings_were_chosen_are_not_reported() -> None:
    """A run is its settings and seed, so a chosen coefficient's own seeds would flatter it."""
    choosing = (coefficient_search.EXPERIMENT, open_choices.EXPERIMENT)
    chosen_on = {seed for e in choosing for arm in e.arms for seed in arm.seeds}
    assert chosen_on == {5, 6, 7, 8, 9}
    for experiment in (table_1, locomotion_curves, ablation, emi_d_coefficient, statistical_tests):
        for arm in experiment.EXPERIMENT.arms:
            assert chosen_on.isdisjoint(arm.seeds), (experiment.EXPERIMENT.name, arm)


def test_emi_against_each_of_the_others() -> None:
    finals = {
        "emi": np.array([200.0, 220.0, 240.0]),
        "icm": np.array([0.0, 10.0, 20.0]),
        "ex2": np.array([150.0, 230.0, 250.0]),
        "rnd": np.array([1.0]),  # one seed has no spread that a test could use
    }
    icm, ex2 = statistical_tests.compare(finals)
    assert (icm.method, ex2.method) == ("icm", "ex2")
    reference = stats.ttest_ind(finals["emi"], finals["icm"], equal_var=False)
    assert icm.difference == 210
    assert (icm.t, icm.p) == pytest.approx((reference.statistic, reference.pvalue))
    assert icm.p_holm == pytest.approx(2 * icm.p)  # the smaller of two
    assert ex2.p_holm == pytest.approx(ex2.p)
    assert icm.probability_of_improvement == 1.0
    assert ex2.probability_of_improvement == pytest.approx(
        4 / 9
    )  # 200 beats 150, so do 220 and 240; 240 beats 230
    assert icm.papers_difference == pytest.approx(216.7)
    assert ex2.papers_difference == pytest.approx(64.4)
    assert icm.power_for_papers_difference > 0.99 > 0.5 > ex2.power_for_papers_difference


def test_the_page_of_the_tests(tmp_path: Path) -> None:
    arms = statistical_tests.EXPERIMENT.arms
    finals = [(200.0, 220.0, 240.0), (0.0, 10.0, 20.0), (0.0, 1.0, 2.0), (150.0, 230.0, 250.0)]
    for arm, values in zip(arms, finals, strict=True):
        write_arm(tmp_path, arm, values)
    stem = tmp_path / "out"
    statistical_tests.draw(find(statistical_tests.EXPERIMENT, tmp_path), stem)
    lines = page(stem).splitlines()
    assert "Not all 15 seeds are available. Seeds: EMI 0-2; ICM 0-2; RND 0-2; EX2 0-2." in lines
    (row,) = (line for line in lines if line.startswith("| ICM | 210.0 ["))
    assert row.endswith("| 1.00 [1.00, 1.00] | 8.58 (2.99e-07) |")
    (sentence,) = (line for line in lines if line.startswith("- EMI and EX2: "))
    assert " with probability 0.8, and" in sentence
    assert "one as large as the paper's (64.4) with probability 0." in sentence


@pytest.mark.parametrize(("of_emi", "of_ex2"), [(1, 2), (2, 1), (2, 0)])
def test_one_seed_of_a_method_is_no_test(tmp_path: Path, of_emi: int, of_ex2: int) -> None:
    emi, *_, ex2 = statistical_tests.EXPERIMENT.arms
    write_arm(tmp_path, emi, [1.0] * of_emi)
    write_arm(tmp_path, ex2, [1.0] * of_ex2)
    with pytest.raises(UserError, match="two seeds or more of emi and of another"):
        statistical_tests.draw(find(statistical_tests.EXPERIMENT, tmp_path), tmp_path / "out")
    assert not list(tmp_path.glob("out*"))


def test_a_method_without_a_run_is_left_out_of_the_tests(tmp_path: Path) -> None:
    emi, *_, ex2 = statistical_tests.EXPERIMENT.arms
    for arm in (emi, ex2):
        write_arm(tmp_path, arm, [float(k) for k in range(15)])
    statistical_tests.draw(find(statistical_tests.EXPERIMENT, tmp_path), tmp_path / "out")
    assert "Not all 15 seeds are available. Seeds: EMI 0-4,10-19; EX2 0-4,10-19." in page(
        tmp_path / "out"
    )


def test_the_legend_of_the_profiles_names_the_methods_of_all_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for env, method in (
        ("SwimmerGather", "trpo"),
        ("SparseHalfCheetah", "rnd"),
        ("SparseHalfCheetah", "emi"),
    ):
        write_arm(tmp_path, *task(env, (method,)), [1.0, 2.0], scale=0.01)
    figures: list[Figure] = []
    monkeypatch.setattr(
        performance_profile, "save_figure", lambda figure, stem: figures.append(figure) or stem
    )
    performance_profile.draw(find(performance_profile.EXPERIMENT, tmp_path), tmp_path / "out")
    (legend,) = figures[0].legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "EMI",
        "RND",
        "TRPO",
        "95 % band of EMI",
    ]


def test_table_1_has_our_number_next_to_the_papers_and_only_its_own_seeds(tmp_path: Path) -> None:
    (emi,) = (
        g for g in table_1.EXPERIMENT.arms if (g.env, g.method) == ("SparseHalfCheetah", "emi")
    )
    more = Arm(emi.folder, emi.env, emi.method, tuple(range(15)), emi.steps)
    write_arm(tmp_path, more, [100.0] * 5 + [0.0] * 10)  # the tests have more seeds
    swimmer = table_1.EXPERIMENT.arms[0]
    write_arm(tmp_path, swimmer, [0.25, 0.125], scale=0.1)
    stem = tmp_path / "out"
    table_1.draw(find(table_1.EXPERIMENT, tmp_path), stem)
    lines = page(stem).splitlines()
    assert (
        "| SparseHalfCheetah | 100.0 / 218.1 | – / 153.7 | – / 1.4 | – / 3.4 |  | – / 0.5 "
        "| – / 98 | – / 0 |" in lines
    )
    (row,) = (line for line in lines if line.startswith("| SwimmerGather (10M of 100M steps) |"))
    assert " 0.188 / 0.438 |" in row
    assert "**SCALED: SwimmerGather at 10M of 100M steps**" in lines
    assert "**SparseHalfCheetah, 5M steps**" in lines
    (detail,) = (line for line in lines if line.startswith("| EMI | 5 |"))
    assert detail.startswith("| EMI | 5 | 100.0 [100.0, 100.0] | 100.0 [100.0, 100.0] |")
    csv = stem.with_name("out.csv").read_text().splitlines()
    assert csv[1].startswith("SwimmerGather,EMI,2,10000000,0.1875,")
    assert csv[2].startswith("SparseHalfCheetah,EMI,5,5000000,100,100,100,100,100,100,")


def test_only_the_complete_method_has_a_number_in_the_ablation(tmp_path: Path) -> None:
    for arm in ablation.ARMS:
        write_arm(tmp_path, arm, [1.0, 2.0])
    stem = tmp_path / "out"
    ablation.draw(find(ablation.EXPERIMENT, tmp_path), stem)
    text = page(stem)
    rows = [line for line in text.splitlines() if line.startswith("| ") and "2 |" in line]
    assert [(row.split(" | ")[0], row.split(" | ")[-1]) for row in rows] == [
        ("| no information term", "– |"),
        ("| no error model", "– |"),
        ("| EMI", "218.1 |"),
    ]
    assert "| no error model | 0.5, 0.5 |" in text  # the length of φ
    assert "SCALED" not in text


def test_emi_d_is_compared_with_all_methods_of_the_supplement() -> None:
    assert {arm.env for arm in emi_d_comparison.EXPERIMENT.arms} == set(PAPER)
    methods = {arm.method for arm in emi_d_comparison.EXPERIMENT.arms}
    assert methods == {"emi", "emi-d", "ex2", "icm", "rnd", "trpo"}


def test_emi_d_is_compared_where_there_are_runs_of_it(tmp_path: Path) -> None:
    for env, method in (("SwimmerGather", "emi"), ("SparseHalfCheetah", "emi")):
        write_arm(tmp_path, *task(env, (method,)), [1.0, 2.0], scale=0.01)
    stem = tmp_path / "out"
    assert emi_d_comparison.draw(find(emi_d_comparison.EXPERIMENT, tmp_path), stem) == []
    write_arm(tmp_path, *task("SparseHalfCheetah", ("emi-d",)), [1.0, 2.0], scale=0.01)
    written = emi_d_comparison.draw(find(emi_d_comparison.EXPERIMENT, tmp_path), stem)
    assert [path.suffix for path in written] == [".png", ".md", ".csv"]
    assert "SparseHalfCheetah" in page(stem)
    assert "SwimmerGather" not in page(stem)


def test_losses_are_averaged_over_growing_intervals() -> None:
    curve = np.arange(1.0, 1_001)[None]
    points = loss_convergence.by_decades(curve)[0]
    assert points[:5].tolist() == [1, 2, 3, 4, 5]
    assert len(points) <= loss_convergence.POINTS
    assert 980 < points[-1] <= 1_000
    assert (np.diff(points) > 0).all()
    short = np.array([[3.0, 2.0, 1.0]])
    np.testing.assert_array_equal(loss_convergence.by_decades(short), short)


def test_the_share_of_the_fall(tmp_path: Path) -> None:
    (arm,) = loss_convergence.EXPERIMENT.arms
    write_arm(tmp_path, arm, [1.0])
    stem = tmp_path / "out"
    loss_convergence.draw(find(loss_convergence.EXPERIMENT, tmp_path), stem)
    # A thousand iterations, 1/k: 1/50, and the mean of the last hundred is about 1/950.
    assert "| `emi/loss_info` | 0 | 1 | 0.02 | 0.00105 | 98% |" in page(stem)


def test_seeds_as_ranges() -> None:
    assert seed_text([0, 1, 2, 4, 7, 8]) == "0-2,4,7-8"
    assert seed_text([3]) == "3"


def test_the_papers_table_1() -> None:
    assert {reference.source for reference in PAPER.values()} == {"paper"}
    assert PAPER["SparseHalfCheetah"].returns == {
        "emi": 218.1,
        "ex2": 153.7,
        "icm": 1.4,
        "rnd": 3.4,
        "ae-simhash": 0.5,
        "simhash": 0.5,
        "vime": 98.0,
        "trpo": 0.0,
    }
    # The column of TRPO, and the best method of each row.
    assert [PAPER[env].returns["trpo"] for env in PAPER] == [0, 0, 26.7, 2034, 263, 508, 3101, 0]
    best = {
        env: max(values.returns, key=values.returns.__getitem__) for env, values in PAPER.items()
    }
    assert best == {
        **dict.fromkeys(PAPER, "emi"),
        "Venture": "rnd",
        "Solaris": "ae-simhash",
    }
    assert set(PAPER) == set(ENVIRONMENTS) - {
        *("BoxImage", "BoxImageWall", "CartPoleSwingUp", "NoisyTV")
    }
