"""AccessService, from request to answer: users, grants and quotas are changed and listed."""

from typing import Any

import pytest

from hourwheel import errors
from hourwheel.v1 import access_pb2 as wire
from node.api.access import Access
from tests.support.control_of_one import ControlOfOne

TOPIC, CLUSTER = wire.ACCESS_RESOURCE_KIND_TOPIC, wire.ACCESS_RESOURCE_KIND_CLUSTER
LOOK, PUBLISH = wire.ACCESS_OPERATION_LOOK, wire.ACCESS_OPERATION_PUBLISH
CONTEXT: Any = None


class World:
    """The service before a control plane of one, whose changes the node hears of at once."""

    def __init__(self) -> None:
        self.control = ControlOfOne()
        self._service = Access(self.control.administration)

    async def call(self, name: str, request: Any) -> Any:
        answer = await getattr(self._service, name)(request, CONTEXT)
        self.control.tell()
        return answer


def grant(**fields: Any) -> wire.AccessGrant:
    given = {"principal": "a", "kind": TOPIC, "resource": "orders", "operations": [LOOK]}
    return wire.AccessGrant(**{**given, **fields})


async def test_users_are_made_listed_by_pages_and_deleted() -> None:
    world = World()
    for name in ("c", "a", "b"):
        made = await world.call("put_user", wire.PutUserRequest(user=name, secret="known to one"))
        assert made.version == world.control.state.access.users[name].version
    first = await world.call("list_users", wire.ListUsersRequest(page_size=2))
    token = first.next_page_token
    rest = await world.call("list_users", wire.ListUsersRequest(page_size=2, page_token=token))
    assert [one.name for one in (*first.users, *rest.users)] == ["a", "b", "c"]
    assert not rest.next_page_token
    await world.call("delete_user", wire.DeleteUserRequest(user="b"))
    left = await world.call("list_users", wire.ListUsersRequest())
    assert [one.name for one in left.users] == ["a", "c"]


async def test_change_is_refused_when_another_one_came_before() -> None:
    world = World()
    put = wire.PutUserRequest(user="a", secret="known to one", expected_version=0)
    version = (await world.call("put_user", put)).version
    with pytest.raises(errors.FailedPrecondition):
        await world.call("put_user", put)
    stale = wire.DeleteUserRequest(user="a", expected_version=version + 1)
    with pytest.raises(errors.FailedPrecondition):
        await world.call("delete_user", stale)
    await world.call("delete_user", wire.DeleteUserRequest(user="a", expected_version=version))


async def test_grants_are_made_listed_in_order_and_deleted() -> None:
    world = World()
    for one in (
        grant(principal="b*", resource="or*", operations=[LOOK, PUBLISH]),
        grant(resource="z"),
        grant(kind=CLUSTER, resource=""),
    ):
        await world.call("put_grant", wire.PutGrantRequest(grant=one))
    listed = (await world.call("list_grants", wire.ListGrantsRequest())).grants
    assert [(one.principal, one.kind, one.resource) for one in listed] == [
        ("a", CLUSTER, ""),
        ("a", TOPIC, "z"),
        ("b*", TOPIC, "or*"),
    ]
    assert set(listed[2].operations) == {LOOK, PUBLISH}
    await world.call("delete_grant", wire.DeleteGrantRequest(grant=grant(resource="z")))
    assert len((await world.call("list_grants", wire.ListGrantsRequest())).grants) == 2
    with pytest.raises(errors.NotFound):
        await world.call("delete_grant", wire.DeleteGrantRequest(grant=grant(resource="z")))


@pytest.mark.parametrize(
    "bad",
    [
        grant(kind=0),
        grant(kind=99),
        grant(operations=[0]),
        grant(operations=[LOOK, 99]),
    ],
)
async def test_grant_is_refused_when_it_says_what_nobody_knows(bad: wire.AccessGrant) -> None:
    world = World()
    with pytest.raises(errors.InvalidArgument):
        await world.call("put_grant", wire.PutGrantRequest(grant=bad))
    assert not world.control.state.access.grants


async def test_quota_of_nothing_is_another_one_than_none() -> None:
    world = World()
    quota = wire.AccessQuota(principal="a", messages_per_s=5, topics=0)
    version = (await world.call("put_quota", wire.PutQuotaRequest(quota=quota))).version
    (listed,) = (await world.call("list_quotas", wire.ListQuotasRequest())).quotas
    assert listed == wire.AccessQuota(principal="a", messages_per_s=5, topics=0, version=version)
    assert listed.HasField("topics")
    assert not listed.HasField("groups")
    await world.call("delete_quota", wire.DeleteQuotaRequest(principal="a"))
    assert not (await world.call("list_quotas", wire.ListQuotasRequest())).quotas
