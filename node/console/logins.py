"""Who uses the console: with access control on, each by a login of its own, which its calls carry.

The browser asks for name and secret, as it does for any page (`Basic`), and sends them with each
request. Programs may send a token. What is shown is what the cluster lets that caller see: nothing
of one is kept for another. The node checks each call, so a login that ends, ends here, too.
"""

import base64
import binascii
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from hourwheel import errors
from hourwheel.transport.access import Access
from node.console.api import Api

LOGINS_MAX: Final = 16
"""Of those whose login held; who asked longest ago gives way, and comes again by itself."""
CHECKING_MAX: Final = 4
"""Logins that are being checked; more are Overloaded."""
HEADER_CHARS_MAX: Final = 12_288


class Logins:
    """See the top of this file. Belongs to the node's loop; `needs_login` and `has` to any."""

    def __init__(self, access: Access, make: Callable[[Access], Api], *, needs_login: bool) -> None:
        """No login is here.

        Args:
            access: how the node itself knows the nodes.
            make: the pages' API for a browser that shows that.
            needs_login: access control is on.
        """
        self._access, self._make, self.needs_login = access, make, needs_login
        self._own = make(access)
        self._apis: OrderedDict[Access, Api] = OrderedDict()
        self._checking = 0

    def has(self, name: str, *, is_change: bool) -> bool:
        """See `Api.has`."""
        return self._own.has(name, is_change=is_change)

    async def find(self, authorization: str) -> Api:
        """What answers a browser that sends this header.

        Raises:
            Unauthenticated: it does not hold.
            HourwheelError: it is unknown now.
        """
        if not self.needs_login:
            return self._own
        access = self._access_of(authorization)
        api = self._apis.get(access)
        if api is None:
            api = await self._check(access)
        self._apis.move_to_end(access)
        return api

    async def _check(self, access: Access) -> Api:
        if self._checking >= CHECKING_MAX:
            raise errors.Overloaded("many logins are being checked", limit="console logins")
        api = self._make(access)
        self._checking += 1
        try:
            await api.check()
        except BaseException:
            await api.close()
            raise
        finally:
            self._checking -= 1
        known = self._apis.setdefault(access, api)
        if known is not api:  # two requests of one page
            await api.close()
        while len(self._apis) > LOGINS_MAX:
            _, oldest = self._apis.popitem(last=False)
            await oldest.close()
        return known

    def _access_of(self, authorization: str) -> Access:
        scheme, _, rest = authorization[:HEADER_CHARS_MAX].partition(" ")
        try:
            if scheme.lower() == "bearer":
                return Access(self._access.tls, token=rest.strip())
            if scheme.lower() == "basic":
                name, colon, secret = (
                    base64.b64decode(rest.strip(), validate=True).decode().partition(":")
                )
                if name and colon:
                    return Access(self._access.tls, user=(name, secret))
        except (binascii.Error, ValueError):
            pass
        raise errors.Unauthenticated

    async def close(self) -> None:
        """Close all connections."""
        for api in (self._own, *self._apis.values()):
            await api.close()
        self._apis.clear()
