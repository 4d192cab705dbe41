"""From the control state to what this node decides by: its policy, and the hashes of its users.

    configuration  whether access control is on, and who has all permissions
    control state  grants, users and quotas, once this node has heard of them

The configuration alone says whether access control is on, so a node that starts is never open for
a moment. Until it has heard of the grants its administrators may do everything, and everybody else
is answered to try again: a node of several has, when it is registered with its cluster.
"""

from hourwheel import errors
from node.access.control import AccessControl
from node.access.quotas import Limits, Quotas
from node.config.access import AccessSection
from node.contracts.access import AccessPolicy, Grant, Operation, ResourceKind
from replication.control_state.access import AccessState, QuotaLimits, StoredGrant, limit_of


class PolicyFeed:
    """See the top of this file. Belongs to one event loop.

    Invariant: `control` decides by `state`, as soon as there is one.
    """

    def __init__(self, section: AccessSection) -> None:
        """Nothing is known of the control state."""
        self._section = section
        self.state: AccessState | None = None
        """The last that was heard of."""
        self.control = AccessControl(policy_of(section, None))
        self.quotas = Quotas()
        """Of everybody; none is limited where access control is off."""

    def on_state(self, state: AccessState) -> None:
        """The control plane says so from now on; mostly it is what it said before."""
        if self.state is None or state.version != self.state.version:
            self.state = state
            self.control.replace(policy_of(self._section, state))
            if self._section.is_on:
                limits = {name: _limits(one.limits) for name, one in state.quotas.items()}
                self.quotas.replace(limits, self._section.administrator_names)

    def find_hash(self, name: str) -> str | None:
        """Of the user's secret; None: there is no such user.

        Raises:
            Unavailable: this node does not know yet.
        """
        if self.state is None:
            raise errors.Unavailable("this node does not know its cluster's users yet; try again")
        user = self.state.users.get(name)
        return None if user is None else user.secret_hash


def policy_of(section: AccessSection, state: AccessState | None) -> AccessPolicy:
    """What a configuration and a control state say of who may do what. Pure."""
    return AccessPolicy(
        is_on=section.is_on,
        is_complete=state is not None,
        version=0 if state is None else state.version,
        grants=() if state is None else tuple(map(_grant, state.grants.values())),
        administrators=section.administrator_names,
    )


def _grant(stored: StoredGrant) -> Grant:
    key = stored.key
    operations = frozenset(map(Operation, stored.operations))
    return Grant(key.principal, operations, ResourceKind(key.kind), key.name)


def _limits(stored: QuotaLimits) -> Limits:
    return Limits(**{name: limit_of(value) for name, value in vars(stored).items()})
