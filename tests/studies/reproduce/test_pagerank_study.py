"""The PageRank study in miniature."""

import json

import networkx as nx
import numpy as np
import pytest

import launch
from configs.commands import ReproduceConfig
from configs.errors import ConfigError
from retrospective.pagerank import pagerank
from studies.reproduce import pagerank as study
from studies.reproduce.run_store import RunStore

SHORT = study.SETTINGS | {"graphs": ["karate"], "steps": 12_000, "logs": 5, "seed": 0}


def made_here(self, chunks, work, stop, arguments):
    for numbers in chunks:
        yield from zip(numbers, work(self.settings, numbers, *arguments), strict=True)


@pytest.fixture(scope="module")
def found():
    return study.learn(SHORT, [0, 1, 2])


def final(found, arm):
    return np.array([run["errors"][arm][-1] for run in found], dtype=float).mean(0)


def test_every_rank_is_learnt_on_and_off_policy(found):
    for arm in ("on-policy", "known", "learnt"):
        start = np.array([run["errors"][arm][0] for run in found]).mean(0)
        assert (final(found, arm) < [0.2, 0.4, 0.2]).all()
        assert (final(found, arm)[[0, 2]] < 0.4 * start[[0, 2]]).all()


def test_rho_alone_has_another_fixed_point(found):
    assert final(found, "rho")[0] > 2 * final(found, "known")[0]


def test_ranks_that_are_found_are_those_of_their_errors(found):
    adjacency, teleports = study.load_graph("karate", SHORT)
    for j in range(3):
        exact = pagerank(adjacency, 0.85, teleports[j], dangling=np.ones(34))
        assert np.abs(found[0]["found"]["learnt"][j] - exact).sum() == pytest.approx(
            found[0]["errors"]["learnt"][-1][j], rel=1e-2
        )
    assert found[0]["errors"]["counts"][-1][1:] == [None, None]


def test_a_run_depends_on_its_number_alone(found):
    (alone,) = study.learn(SHORT, [1])
    assert np.allclose(alone["found"]["learnt"], found[1]["found"]["learnt"], rtol=1e-4)


@pytest.mark.parametrize("name", study.SETTINGS["graphs"])
def test_graphs_have_the_pages_of_networkx_and_three_teleport_distributions(name):
    adjacency, teleports = study.load_graph(name, study.SETTINGS)
    assert teleports.shape == (3, len(adjacency))
    assert teleports.sum(-1) == pytest.approx(1)
    assert len(adjacency) == {"karate": 34, "les_miserables": 77, "web": 60}[name]
    assert (adjacency.sum(-1) == 0).any() == (name == "web")


def test_the_personalised_page_and_the_topic_are_those_that_are_named():
    graph = nx.les_miserables_graph()
    _, (_, page, topic) = study.load_graph("les_miserables", study.SETTINGS)
    assert [node for node, share in zip(graph, page, strict=True) if share] == ["Valjean"]
    assert {node for node, share in zip(graph, topic, strict=True) if share} == set(graph["Gavroche"])
    with pytest.raises(ConfigError, match="unknown graph 'moon'"):
        study.load_graph("moon", study.SETTINGS)


def test_the_closed_form_agrees_with_networkx():
    errors = study.closed_form_errors(study.SETTINGS)
    assert len(errors) == 6
    assert max(errors.values()) < 1e-10


def test_the_study_writes_its_results_and_a_rerun_continues(tmp_path, monkeypatch, never):
    for name in ("graphs", "steps", "logs"):
        monkeypatch.setitem(study.SETTINGS, name, SHORT[name])
    monkeypatch.setitem(study.SETTINGS, "steps", 1500)
    monkeypatch.setattr(study.Experiment, "_make", made_here)
    summary = study.reproduce_pagerank(ReproduceConfig(out=str(tmp_path), runs=2), never)
    assert (tmp_path / "summary.md").read_text() == summary
    assert "**agrees** to 1e-10" in summary
    assert "| karate | off-policy, tau learnt |" in summary
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    data = json.loads((tmp_path / "data.json").read_text())
    assert np.array(data["karate"]["known"]["mean"]).shape == (5, 3)
    kept = RunStore(tmp_path).read()
    assert study.reproduce_pagerank(ReproduceConfig(out=str(tmp_path), runs=2), never) == summary
    study.reproduce_pagerank(ReproduceConfig(out=str(tmp_path), runs=3), never)
    assert kept.items() < RunStore(tmp_path).read().items()


def test_without_the_extra_the_command_says_what_to_install(tmp_path, monkeypatch, capsys, signals):
    monkeypatch.setattr("studies.reproduce.experiment.find_spec", lambda name: None)
    assert launch.main(["reproduce", "pagerank", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error == "launch.py: reproduce pagerank needs networkx: pip install 'hindcast[streams]'\n"
    assert not (tmp_path / "out").exists()
