"""AccessService over real gRPC: users, grants and quotas, changed and listed."""

from typing import Any

from hourwheel.v1 import access_pb2 as wire
from hourwheel.v1.access_pb2_grpc import AccessServiceStub
from tests.support.api_world import ApiWorld, refused
from tests.support.control_of_one import ControlOfOne

TOPIC, CLUSTER = wire.ACCESS_RESOURCE_KIND_TOPIC, wire.ACCESS_RESOURCE_KIND_CLUSTER
LOOK, PUBLISH = wire.ACCESS_OPERATION_LOOK, wire.ACCESS_OPERATION_PUBLISH


def grant(principal: str, resource: str = "orders", *operations: Any) -> wire.AccessGrant:
    return wire.AccessGrant(
        principal=principal, kind=TOPIC, resource=resource, operations=operations
    )


async def test_users_are_listed_page_by_page_without_hashes() -> None:
    control = ControlOfOne()
    async with ApiWorld(administration=control.administration) as world:
        stub: Any = AccessServiceStub(world.channel)
        names = sorted(["ädä", "bob", *(f"user-{number}" for number in range(5))])
        for name in names:
            made = await stub.PutUser(wire.PutUserRequest(user=name, secret="known to one"))
            assert made.version == control.state.access.users[name].version
        control.tell()
        token, found = b"", []
        while True:
            page = await stub.ListUsers(wire.ListUsersRequest(page_size=3, page_token=token))
            assert b"known to one" not in page.SerializeToString()
            found += [one.name for one in page.users]
            token = page.next_page_token
            if not token:
                break
        assert found == names
        again = wire.DeleteUserRequest(user="bob", expected_version=1)
        assert (await refused(stub.DeleteUser(again))).reason == "FAILED_PRECONDITION"
        await stub.DeleteUser(wire.DeleteUserRequest(user="bob"))
        assert "bob" not in control.state.access.users


async def test_grants_are_put_listed_and_deleted() -> None:
    control = ControlOfOne()
    async with ApiWorld(administration=control.administration) as world:
        stub: Any = AccessServiceStub(world.channel)
        await stub.PutGrant(wire.PutGrantRequest(grant=grant("b*", "or*", LOOK, PUBLISH)))
        of_cluster = wire.AccessGrant(principal="a", kind=CLUSTER, operations=[LOOK])
        await stub.PutGrant(wire.PutGrantRequest(grant=of_cluster, expected_version=0))
        control.tell()
        listed = (await stub.ListGrants(wire.ListGrantsRequest())).grants
        assert [(one.principal, one.kind, one.resource) for one in listed] == [
            ("a", CLUSTER, ""),
            ("b*", TOPIC, "or*"),
        ]
        assert list(listed[1].operations) == [PUBLISH, LOOK]
        await stub.DeleteGrant(wire.DeleteGrantRequest(grant=grant("b*", "or*")))
        gone = await refused(stub.DeleteGrant(wire.DeleteGrantRequest(grant=grant("b*", "or*"))))
        assert gone.reason == "NOT_FOUND"
        for wrong in (grant("a"), grant("a", "o", 77), wire.AccessGrant(principal="a")):
            refusal = await refused(stub.PutGrant(wire.PutGrantRequest(grant=wrong)))
            assert refusal.reason == "INVALID_ARGUMENT"


async def test_quotas_are_put_listed_and_deleted_and_zero_is_not_none() -> None:
    control = ControlOfOne()
    async with ApiWorld(administration=control.administration) as world:
        stub: Any = AccessServiceStub(world.channel)
        given = wire.AccessQuota(principal="shop", messages_per_s=0, topics=7)
        made = await stub.PutQuota(wire.PutQuotaRequest(quota=given, expected_version=0))
        await stub.PutQuota(wire.PutQuotaRequest(quota=wire.AccessQuota(principal="*")))
        control.tell()
        listed = (await stub.ListQuotas(wire.ListQuotasRequest())).quotas
        assert [one.principal for one in listed] == ["*", "shop"]
        given.version = made.version
        assert listed[1] == given
        assert not listed[1].HasField("bytes_per_s")
        for wrong in ("", "a*"):
            put = wire.PutQuotaRequest(quota=wire.AccessQuota(principal=wrong))
            assert (await refused(stub.PutQuota(put))).reason == "INVALID_ARGUMENT"
        given.bytes_per_s = 2**64 - 1
        refusal = await refused(stub.PutQuota(wire.PutQuotaRequest(quota=given)))
        assert refusal.reason == "INVALID_ARGUMENT"
        await stub.DeleteQuota(wire.DeleteQuotaRequest(principal="shop"))
        gone = await refused(stub.DeleteQuota(wire.DeleteQuotaRequest(principal="shop")))
        assert gone.reason == "NOT_FOUND"
        assert "shop" not in control.state.access.quotas
