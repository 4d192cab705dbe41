"""Section `cluster`: the other nodes."""

from node.config.section import Section
from node.config.section import key_of as _key


class ClusterSection(Section):
    """The other nodes. Without any, the node is alone and needs none of this."""

    nodes: str = _key(
        "",
        "",
        "All nodes, this one included, each as id=api,data,control (three host:port), with spaces "
        "between them; the same text on every node. Empty: a node alone.",
    )
    id: str = _key(
        "",
        "",
        "32 hexadecimal digits; empty: made of the nodes' ids and the secret or the TLS authority. "
        "To change those later, write down the one that the nodes have.",
    )
    join: bool = _key(
        False,
        "",
        "A new node of a cluster that exists: it waits to be made a member before it votes for the "
        "first time. `nodes` names it and some members, and `id` is the cluster's.",
    )
    data_listen: str = _key("", "", "Where other brokers reach this one; empty: as in `nodes`.")
    control_listen: str = _key(
        "", "", "Where other control processes reach this node's; empty: as in `nodes`."
    )
    secret_file: str = _key(
        "", "", "File with the secret that all nodes share; without TLS, and on loopback only."
    )
    tls_certificate_file: str = _key(
        "",
        "",
        "This node's certificate chain, PEM; its id is in it. Read again when it changes, as"
        " key and authority are.",
    )
    tls_key_file: str = _key("", "", "The certificate's private key, PEM.")
    tls_authority_file: str = _key("", "", "Who may sign the nodes' certificates, PEM.")
    min_in_sync: int = _key(
        2, "nodes", "Nothing is acknowledged before it is durable on so many.", ge=1, le=16
    )
    sync_interval_ms: int = _key(
        50, "ms", "The master tells tick and local index to the others so often.", ge=10, le=1_000
    )
    lease_ms: int = _key(
        400,
        "ms",
        "A master that hears nothing from a majority serves no longer than this; its successor "
        "waits as long.",
        ge=100,
        le=60_000,
    )
    lag_ms: int = _key(
        1_500, "ms", "A replica so far behind is no longer in sync.", ge=100, le=600_000
    )
    report_timeout_ms: int = _key(
        1_000, "ms", "A node that is silent for so long counts as dead.", ge=100, le=600_000
    )
    allow_faults: bool = _key(
        False, "", "For tests: faults may be injected between the nodes. Never in production."
    )
