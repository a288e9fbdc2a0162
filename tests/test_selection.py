"""The rule: against properties that hold for any servers and any list, and against a plain model.

The model is asked about topologies of this PyMongo, too.
"""

from __future__ import annotations

from typing import AbstractSet, Any, Callable, NamedTuple, Sequence

from hypothesis import given
from hypothesis import strategies as st
from pymongo.read_preferences import (
    Nearest,
    Primary,
    PrimaryPreferred,
    Secondary,
    SecondaryPreferred,
)
from pymongo.server_description import ServerDescription
from support import Hello, make_topology, reply

import pymongo_deprio
from pymongo_deprio._operation import Lent, lending
from pymongo_deprio._selection import select

SERVERS = "abcdefgh"
some_servers = st.frozensets(st.sampled_from(SERVERS))
# More than one address that is not known at all, as a server may have left the topology.
lists = st.lists(st.sampled_from(SERVERS + "yz"), unique=True)


def asks(
    suitable: AbstractSet[str], calls: list[AbstractSet[str]]
) -> Callable[[AbstractSet[str]], list[str]]:
    """Return a selection of these servers, which notes what it was asked to leave out."""

    def answer(left_out: AbstractSet[str]) -> list[str]:
        calls.append(left_out)
        return sorted(suitable - left_out)

    return answer


@given(suitable=some_servers, others=some_servers, deprioritized=lists, sharded=st.booleans())
def test_nothing_deprioritized_while_another_is_suitable(
    suitable: AbstractSet[str], others: AbstractSet[str], deprioritized: list[str], sharded: bool
) -> None:
    """While a suitable server is not on the list, exactly these are selected, in one question."""
    calls: list[AbstractSet[str]] = []
    well = suitable - set(deprioritized)
    selected = select(asks(suitable, calls), deprioritized, suitable | others, sharded=sharded)
    if well:
        assert set(selected) == well
        assert len(calls) == 1


@given(suitable=some_servers, others=some_servers, deprioritized=lists, sharded=st.booleans())
def test_never_worse_than_without_a_list(
    suitable: AbstractSet[str], others: AbstractSet[str], deprioritized: list[str], sharded: bool
) -> None:
    """Only suitable servers are selected, and one whenever there is one."""
    selected = select(asks(suitable, []), deprioritized, suitable | others, sharded=sharded)
    assert set(selected) <= suitable
    assert bool(selected) == bool(suitable)


@given(suitable=some_servers, others=some_servers, deprioritized=lists)
def test_the_oldest_failure_is_taken_back_first(
    suitable: AbstractSet[str], others: AbstractSet[str], deprioritized: list[str]
) -> None:
    """With every suitable server on the list, a sharded cluster gives the one that failed first."""
    selected = select(asks(suitable, []), deprioritized, suitable | others, sharded=True)
    if suitable and suitable <= set(deprioritized):
        assert selected == [next(server for server in deprioritized if server in suitable)]


@given(suitable=some_servers, others=some_servers, deprioritized=lists)
def test_other_topologies_take_all_back_at_once(
    suitable: AbstractSet[str], others: AbstractSet[str], deprioritized: list[str]
) -> None:
    """With every suitable server on the list, a replica set gives them all, as specified."""
    calls: list[AbstractSet[str]] = []
    selected = select(asks(suitable, calls), deprioritized, suitable | others, sharded=False)
    if suitable <= set(deprioritized):
        assert set(selected) == suitable
    assert len(calls) <= 2


# -- The model -------------------------------------------------------------------------------------


def model(
    suitable: Callable[[set[Any]], set[Any]],
    known: set[Any],
    failed: Sequence[Any],
    cooling: AbstractSet[Any],
    *,
    sharded: bool,
) -> set[Any]:
    """Return what docs/how-it-works.md asks for, question by question.

    :param suitable: selects among those that are left.
    """
    questions = [{*failed, *cooling}, set(failed)]
    if sharded:
        questions += [set(failed[taken_back:]) for taken_back in range(1, len(failed))]
    for left_out in questions:
        left = known - left_out
        if left and left != known:
            try:
                answer = suitable(left)
            except LookupError:
                continue  # its favourite is missing
            if answer:
                return answer
        elif left:
            break  # nobody is left out: the last question
    return suitable(known)


ranks = st.dictionaries(st.sampled_from(SERVERS), st.integers(0, 3))


@given(ranks=ranks, deprioritized=lists, cooling=some_servers, sharded=st.booleans())
def test_the_rule_is_that_of_the_model(
    ranks: dict[str, int], deprioritized: list[str], cooling: AbstractSet[str], sharded: bool
) -> None:
    """Also where who is suitable depends on who is left, as with a latency window."""

    def suitable(left: set[str]) -> set[str]:
        best = min((ranks[server] for server in left), default=0)
        return {server for server in left if ranks[server] == best != 3}

    def ask(left_out: AbstractSet[str]) -> list[str]:
        return sorted(suitable(set(ranks) - left_out))

    selected = select(ask, deprioritized, set(ranks), cooling, sharded=sharded)
    expected = model(suitable, set(ranks), deprioritized, cooling, sharded=sharded)
    assert set(selected) == expected


class Server(NamedTuple):
    """A server of a topology; one without a kind does not answer."""

    kind: str
    rtt: float
    region: str


class Preference(NamedTuple):
    """A read preference, and what it selects of the servers that are left."""

    selector: Any
    modes: tuple[str, ...]
    regions: tuple[str, ...] = ("",)


ADDRESSES = [(name, 1) for name in "abcd"]
REGIONS = ("x", "y")
MODES: dict[type[Any], tuple[str, ...]] = {
    Primary: ("primary",),
    PrimaryPreferred: ("primary", "secondary"),
    Secondary: ("secondary",),
    SecondaryPreferred: ("secondary", "primary"),
    Nearest: ("nearest",),
}


def preference_of(mode: type[Any], regions: list[str]) -> Preference:
    """Make a read preference for one region after the other; an empty one is any."""
    if mode is Primary:
        return Preference(Primary(), MODES[mode])
    tag_sets = [{"region": region} if region else {} for region in regions]
    return Preference(mode(tag_sets=tag_sets), MODES[mode], tuple(regions))


preferences = st.builds(
    preference_of,
    st.sampled_from(list(MODES)),
    st.lists(st.sampled_from(["", *REGIONS]), min_size=1, max_size=2, unique=True),
)
times = st.sampled_from([0.001, 0.005, 0.01, 0.02, 0.05, 0.3])


def servers_of(*kinds: str) -> st.SearchStrategy[dict[Any, Server]]:
    """Make servers of these kinds; PyMongo before 4.0 takes one alone for a topology of its own."""
    server = st.builds(Server, st.sampled_from(kinds), times, st.sampled_from(REGIONS))
    addresses = st.permutations(ADDRESSES)
    return st.builds(
        lambda order, servers: dict(zip(order, servers)),
        addresses,
        st.lists(server, min_size=2, max_size=len(ADDRESSES)),
    )


def with_one_primary(servers: dict[Any, Server]) -> dict[Any, Server]:
    """Make secondaries of all primaries but the first."""
    primaries = [address for address in servers if servers[address].kind == "primary"]
    others = {address: servers[address]._replace(kind="secondary") for address in primaries[1:]}
    return {**servers, **others}


topologies = st.one_of(
    servers_of("mongos"),
    servers_of("mongos"),
    servers_of("mongos", "mongos", ""),
    servers_of("primary", "secondary", "secondary").map(with_one_primary),
    servers_of("primary", "secondary", "secondary", "").map(with_one_primary),
    servers_of("secondary", ""),
    servers_of("standalone").map(lambda servers: dict([*servers.items()][:1])),
)


class Choice:
    """An application's server_selector, which notes whom it was asked about."""

    def __init__(self, kind: str, addresses: list[Any]) -> None:
        self.kind = kind
        self.addresses = addresses
        self.asked: list[int] = []

    def __repr__(self) -> str:  # noqa: D105 - hypothesis shows it
        return f"Choice({self.kind!r}, {self.addresses!r})"

    def __call__(self, servers: list[Any]) -> list[Any]:
        self.asked.append(len(servers))
        by_address = {server.address: server for server in servers}
        chosen = self.choose(set(by_address))
        return [server for server in servers if server.address in chosen]

    def choose(self, offered: set[Any]) -> set[Any]:
        """Choose some; raises LookupError if it is of the kind that does."""
        if self.kind == "some":
            return offered & set(self.addresses)
        if self.kind == "lowest":
            return {min(offered)}
        if self.kind == "expects" and not offered & set(self.addresses):
            raise LookupError
        return offered if self.kind == "expects" else set()


favourites = st.lists(st.sampled_from(ADDRESSES), min_size=1, max_size=2)
choices = st.one_of(
    st.none(),
    st.builds(Choice, st.just("expects"), favourites),
    st.builds(Choice, st.sampled_from(["some", "lowest", "nobody"]), favourites),
)
failures = st.builds(
    lambda order, count: order[:count],
    st.permutations([*ADDRESSES, ("gone", 1)]),
    st.integers(0, len(ADDRESSES) + 1),
)


class World(NamedTuple):
    """What decides a selection beside the list."""

    servers: dict[Any, Server]
    preference: Preference
    choice: Choice | None
    threshold_ms: int

    @property
    def known(self) -> set[Any]:
        return {address for address, server in self.servers.items() if server.kind}

    @property
    def kinds(self) -> set[str]:
        return {self.servers[address].kind for address in self.known}

    def suitable(self, left: set[Any]) -> set[Any]:
        """Return what PyMongo selects alone if it knows of these servers only."""
        if not self.kinds:
            return set()
        if self.kinds == {"standalone"}:
            return left
        members = left if self.kinds == {"mongos"} else self._preferred(left)
        if self.choice is not None and members:
            members = self.choice.choose(members)
        fastest = min((self.servers[address].rtt for address in members), default=0)
        return {
            address
            for address in members
            if self.servers[address].rtt - fastest <= self.threshold_ms / 1000.0
        }

    def _preferred(self, left: set[Any]) -> set[Any]:
        for mode in self.preference.modes:
            members = {
                address for address in left if mode in (self.servers[address].kind, "nearest")
            }
            # Tags are for secondaries; the primary has to have them for "nearest" only.
            for region in self.preference.regions if mode != "primary" else [""]:
                of_region = {a for a in members if region in ("", self.servers[a].region)}
                if of_region:
                    return of_region
        return set()

    def topology(self) -> Any:
        """Return a topology of this PyMongo that has heard of its servers what they are."""
        kinds = {address: server.kind for address, server in self.servers.items()}
        topology = make_topology(
            kinds,
            known=False,
            server_selector=self.choice,
            local_threshold_ms=self.threshold_ms,
        )
        topology._opened = True
        for address in sorted(self.known):
            server = self.servers[address]
            document = {
                **reply(server.kind, address, kinds),
                "tags": {"region": server.region},
            }
            topology.on_change(ServerDescription(address, Hello(document), server.rtt))
        return topology


RAISED = "what the application's server_selector raised"


def outcome(select: Callable[[], list[Any]]) -> set[Any] | str:
    """Return the addresses that a selection returns, or that it raised."""
    try:
        return {server.address for server in select()}
    except LookupError:
        return RAISED


def expected(world: World, failed: list[Any], cooling: AbstractSet[Any]) -> set[Any] | str:
    """Return what the model says."""
    sharded = world.kinds == {"mongos"}
    try:
        return model(world.suitable, world.known, failed, cooling, sharded=sharded)
    except LookupError:
        return RAISED


@given(
    world=st.builds(World, topologies, preferences, choices, st.sampled_from([0, 15, 40, 1000])),
    failed=failures,
    cooling=st.frozensets(st.sampled_from(ADDRESSES)),
)
def test_pymongo_selects_as_the_model(
    world: World, failed: list[Any], cooling: frozenset[Any]
) -> None:
    """Whatever the topology, the read preference, the window and the application's choice are."""
    if world.kinds != {"mongos"}:
        cooling = frozenset()  # there is no cooldown elsewhere
    description = world.topology().description
    arguments = world.preference.selector, None, world.choice
    with pymongo_deprio.enable(strict=True):
        by_hand = outcome(lambda: description.apply_selector(*arguments, list(failed)))
        with lending(Lent(description._topology_settings, tuple(failed), cooling)):
            in_an_operation = outcome(lambda: description.apply_selector(*arguments))
    assert by_hand == expected(world, failed, frozenset())
    assert in_an_operation == expected(world, failed, cooling)
    assert world.choice is None or 0 not in world.choice.asked
