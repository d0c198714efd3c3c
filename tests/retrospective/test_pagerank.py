"""PageRank as a Reverse GVF: by hand, against networkx, and as the fixed point of Reverse TD."""

import networkx as nx
import numpy as np
import pytest

from retrospective.finite_mdp import density_ratio, importance_ratio
from retrospective.pagerank import Surfer, distribution, link_matrix, pagerank
from retrospective.reverse_td import ReverseTD, RobbinsMonro
from tests.retrospective.test_finite_mdp import streams_of

BUNDLED = {
    "karate": nx.karate_club_graph,
    "davis": nx.davis_southern_women_graph,
    "florentine": nx.florentine_families_graph,
    "les_miserables": nx.les_miserables_graph,
    "krackhardt": nx.krackhardt_kite_graph,
    "web": lambda: nx.DiGraph(nx.scale_free_graph(40, seed=1)),
}


def reference(graph, **settings):
    ranks = nx.pagerank(graph, tol=1e-15, max_iter=10_000, **settings)
    return np.array([ranks[node] for node in graph])


def test_two_pages_by_hand():
    """0 -> 1, and 1 has no link: r0 = .15/2 + .85 r1 / 2, r1 = .15/2 + .85 (r0 + r1 / 2)."""
    r0, r1 = pagerank([[0, 1], [0, 0]])
    assert r0 + r1 == pytest.approx(1)
    assert r0 == pytest.approx(0.075 + 0.425 * r1)
    assert r1 == pytest.approx(0.075 + 0.85 * r0 + 0.425 * r1)
    assert link_matrix([[0, 1], [0, 0]]).tolist() == [[0, 1], [0.5, 0.5]]


@pytest.mark.parametrize("name", BUNDLED)
@pytest.mark.parametrize("damping", [0.5, 0.85])
def test_the_closed_form_equals_networkx_on_its_bundled_graphs(name, damping):
    graph = BUNDLED[name]()
    adjacency = nx.to_numpy_array(graph)
    found = pagerank(adjacency, damping)
    assert np.abs(found - reference(graph, alpha=damping)).max() < 1e-10
    topic = {node: float(i < 3) for i, node in enumerate(graph)}
    found = pagerank(adjacency, damping, list(topic.values()))
    assert np.abs(found - reference(graph, alpha=damping, personalization=topic)).max() < 1e-10


def test_the_closed_form_equals_networkx_on_small_graphs_of_every_shape():
    """Those with up to six nodes, isolated ones among them."""
    graphs = [graph for graph in nx.graph_atlas_g() if 0 < len(graph) <= 6]
    assert len(graphs) == 208
    assert any(min(dict(graph.degree).values()) == 0 for graph in graphs)
    for graph in graphs:
        assert np.abs(pagerank(nx.to_numpy_array(graph)) - reference(graph)).max() < 1e-10


@pytest.mark.parametrize("name", ["florentine", "web"])
def test_the_reverse_gvf_times_the_visiting_distribution_is_pagerank(name):
    graph = BUNDLED[name]()
    links = link_matrix(nx.to_numpy_array(graph))
    for jump in (0.05, 0.15):
        surfer = Surfer(links, jump)
        for weights in (None, np.arange(len(links))):
            mdp = surfer.mdp(0.85, weights)
            found = mdp.stationary_distribution(surfer.policy) * mdp.reverse_gvf(surfer.policy)
            expected = pagerank(nx.to_numpy_array(graph), 0.85, weights, dangling=np.ones(len(links)))
            assert np.abs(found - expected).max() < 1e-10


def test_a_surfer_who_jumps_as_often_as_pagerank_teleports_visits_pages_by_their_rank():
    adjacency = nx.to_numpy_array(nx.florentine_families_graph())
    surfer = Surfer(link_matrix(adjacency), 0.15)
    mdp = surfer.mdp(0.85)
    assert mdp.stationary_distribution(surfer.policy) == pytest.approx(pagerank(adjacency))
    assert mdp.reverse_gvf(surfer.policy) == pytest.approx(1)


def test_reverse_td_learns_ranks_from_the_clicks_of_another_surfer():
    adjacency = np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0]])
    target = Surfer(link_matrix(adjacency), 0.05)
    behaviour = Surfer(link_matrix(adjacency * [1, 1, 3]), 0.2)
    mdp = target.mdp(0.85)
    tau, rho = density_ratio(mdp, target.policy, behaviour.policy), importance_ratio(mdp, target.policy, behaviour.policy)
    streams, x = 100, np.eye(3)
    learner = ReverseTD(np.zeros((streams, 3)), RobbinsMonro(0.2, delay=300.0, power=0.8))
    for s, a, t in streams_of(mdp, behaviour.policy, streams, 3000, 0):
        learner.update(x[s], x[t], mdp.reward[s, a, t], mdp.discount[s, a, t], tau[s] * rho[s, a])
    found = mdp.stationary_distribution(target.policy) * learner.weights
    error = found.std(0) / np.sqrt(streams)
    assert np.abs(tau - 1).max() > 0.1
    assert (np.abs(found.mean(0) - pagerank(adjacency, dangling=np.ones(3))) < 5 * error + 0.005).all()
    assert error.max() < 0.01


@pytest.mark.parametrize(
    ("adjacency", "settings", "complaint"),
    [
        (np.empty((0, 0)), {}, "the graph is empty"),
        ([], {}, "the graph is empty"),
        ([[1, 0]], {}, r"\[pages, pages\], not \[1, 2\]"),
        ([[np.nan]], {}, "must be finite and not negative"),
        ([[-1.0]], {}, "must be finite and not negative"),
        ([[1.0]], {"damping": 1.0}, r"damping must lie in \(0, 1\), not 1.0"),
        ([[1.0]], {"damping": 0.0}, r"damping must lie in \(0, 1\)"),
        ([[1.0]], {"personalisation": [0.0]}, "not all 0"),
        ([[1.0]], {"personalisation": [1.0, 2.0]}, "over 1 pages"),
    ],
)
def test_invalid_graphs_and_rates_are_refused(adjacency, settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        pagerank(adjacency, **settings)


def test_invalid_surfers_are_refused():
    with pytest.raises(ValueError, match=r"jump must lie in \(0, 1\)"):
        Surfer(np.eye(2), 0.0)
    with pytest.raises(ValueError, match=r"damping must be at most 1 - jump = 0\.8"):
        Surfer(np.eye(2), 0.2).mdp(0.85)
    with pytest.raises(ValueError, match="finite, not negative"):
        distribution([np.inf, 1.0], 2)
