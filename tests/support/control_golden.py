"""Golden files of the control state: `python -m tests.support.control_golden`.

Writes those of tests/golden that are missing. A file that exists is never written: for newer rules
add a builder with a name of its own, and keep the old one.
"""

from typing import Any, Final

from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import FIRST_SHARD, NodeId
from node.cluster.restored_control import write_restored
from node.shard.node_meta import CONTROL_RESTORED
from replication.control_state.catalog_commands import CATALOG_RULES
from replication.control_state.commands import apply_command, make_command
from replication.control_state.member_commands import GROWING_RULES, next_state
from replication.control_state.state import ControlState, decode_state, encode_state
from replication.standalone.control_journal import JOURNAL, ControlJournal
from storage.files.file_header import Identity
from tests.sim.disk import SimulatedDisk
from tests.support.golden import FOLDER

CLUSTER_ID: Final = bytes(range(16))
IDENTITY: Final = Identity(CLUSTER_ID, FIRST_SHARD)
DIRECTORY: Final = "control-alone"
NODE: Final = NodeId("node-1")
_BOOT_ID: Final = bytes(range(16, 32))
_LINE_BYTES: Final = 32


def commands_of_rules_1() -> list[bytes]:
    """A cluster of two with a master, a topic and two groups, of which one is deleted."""
    return _encoded(
        {
            "bootstrap": pb.BootstrapCommand(
                cluster_id=CLUSTER_ID, node_ids=["node-1", "node-2"], min_in_sync=1, shard_count=1
            )
        },
        {
            "register_node": pb.RegisterNodeCommand(
                node_id="node-1",
                api_address="a:1",
                data_address="a:2",
                control_address="a:3",
                boot_id=_BOOT_ID,
                software_version="0.1.0",
                isr_is_sound=True,
                seen=[pb.SeenEpoch(shard=0, epoch=3, master_node_id="node-1")],
                feature_level=3,
            )
        },
        {
            "elect_master": pb.ElectMasterCommand(
                shard=0, expected_epoch=0, master_node_id="node-1", master_boot_id=_BOOT_ID
            )
        },
        {"put_topic": pb.PutObjectCommand(name="orders", settings=b"\x01\x02")},
        {"put_group": pb.PutObjectCommand(name="mail")},
        {"put_group": pb.PutObjectCommand(name="billing", settings=b"\x03")},
        {"delete_group": pb.DeleteObjectCommand(name="mail", expected_version=5)},
    )


def commands_of_rules_2() -> list[bytes]:
    """Rules 2; a user, two grants and a quota, some of them in a batch."""
    many = [
        make_command(
            b"",
            put_grant=pb.PutGrantCommand(
                key=pb.GrantKey(principal="shop*", kind="topic", name="orders*"),
                operations=["publish", "cancel"],
            ),
        ),
        make_command(
            b"",
            put_quota=pb.PutQuotaCommand(
                principal="*", limits=pb.QuotaLimits(messages_per_s=100, topics=7)
            ),
        ),
    ]
    return _encoded(
        {"set_rules": pb.SetRulesCommand(rules=2)},
        {"put_user": pb.PutUserCommand(name="shop", secret_hash="$argon2id$v=19$m=1")},
        {
            "put_grant": pb.PutGrantCommand(
                key=pb.GrantKey(principal="ops", kind="cluster"), operations=["look", "administer"]
            )
        },
        {"batch": pb.BatchCommand(commands=many)},
    )


def commands_of_an_import() -> list[bytes]:
    """Topics and groups that come over from a log in two pieces, and one that goes."""
    topics = [pb.ObjectData(name="orders", object_id=3, settings=b"\x01\x02")]
    groups = [pb.ObjectData(name="billing", object_id=2)]
    pieces = [
        pb.ImportCatalogCommand(
            epoch=4, topics=topics, revision_floor=1_000, next_topic_id=9, next_group_id=4
        ),
        pb.ImportCatalogCommand(epoch=4, piece=1, groups=groups, is_last=True),
    ]
    return _encoded(
        {"set_rules": pb.SetRulesCommand(rules=CATALOG_RULES)},
        *({"import_catalog": one} for one in pieces),
        {"expire_topic": pb.ExpireObjectCommand(name="orders", expected_version=1_001, epoch=4)},
        {"put_topic": pb.PutObjectCommand(name="bills", settings=b"\x03")},
        first=100,
    )


def _encoded(*commands: dict[str, Any], first: int = 0) -> list[bytes]:
    return [
        make_command(
            next(iter(one)).encode()[:8].ljust(8) + at.to_bytes(8, "big"), **one
        ).SerializeToString(deterministic=True)
        for at, one in enumerate(commands, first)
    ]


def state_of_rules_2() -> bytes:
    """What these commands make, with what they were answered."""
    state = ControlState()
    for command in commands_of_rules_1() + commands_of_rules_2():
        state, _ = apply_command(state, command)
    return encode_state(state)


def grown_state() -> bytes:
    """A cluster of one that has begun to grow: members and a goal for min_in_sync, rules 4."""
    members = [
        pb.MemberData(node_id=f"node-{number}", control_address=f"c:{number}") for number in (1, 2)
    ]
    grown = _encoded(
        {"set_rules": pb.SetRulesCommand(rules=GROWING_RULES)},
        {"note_members": pb.NoteMembersCommand(members=members[:1])},
        {"change_members": pb.ChangeMembersCommand(members=members)},
    )
    state = ControlState(cluster_id=CLUSTER_ID, min_in_sync=1)
    for command in grown:
        state, _ = apply_command(state, command)
    return encode_state(next_state(state))


def imported_state() -> bytes:
    """What all these commands make."""
    state = decode_state(state_of_rules_2())
    for command in commands_of_an_import():
        state, _ = apply_command(state, command)
    return encode_state(state)


def journal_of_one() -> bytes:
    """Of a node alone: what it begins with, and the commands of rules 2."""
    disk = SimulatedDisk()
    journal = ControlJournal.open(disk, DIRECTORY, IDENTITY, NODE)
    journal.apply(commands_of_rules_2())
    file = disk.open(f"{DIRECTORY}/{JOURNAL}")
    return file.pread(file.size(), 0).rstrip(b"\0")


def restored_file() -> bytes:
    """What a restore leaves for the first start: `control-restored`, of the state of rules 2."""
    disk = SimulatedDisk()
    write_restored(disk, IDENTITY, decode_state(state_of_rules_2()))
    file = disk.open(CONTROL_RESTORED)
    return file.pread(file.size(), 0)


BUILDERS: Final = {
    "control_state_rules_2": state_of_rules_2,
    "control_journal_rules_2": journal_of_one,
    "control_state_grown": grown_state,
    "control_restored": restored_file,
    "control_state_imported": imported_state,
}


def main() -> None:
    """Write what is missing."""
    for name, build in BUILDERS.items():
        path = FOLDER / f"{name}.hex"
        if not path.exists():
            raw = build()
            lines = [raw[at : at + _LINE_BYTES].hex() for at in range(0, len(raw), _LINE_BYTES)]
            path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
