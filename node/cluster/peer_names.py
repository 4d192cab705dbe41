"""Calls of nodes: of those whose certificate names one of the cluster.

The authority that signs the nodes' certificates may sign others as well, of clients, or of another
cluster's nodes. Whose certificate names no node is refused before anything of a call is read, as
the control plane does it.
"""

import inspect
from collections.abc import Awaitable, Callable, Container
from functools import lru_cache
from typing import Any, Final, TypeAlias

import grpc
from cryptography import x509
from cryptography.x509.oid import NameOID

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"

_CERTIFICATES_MAX: Final = 1_024
_PEM: Final = "x509_pem_cert"
_NO_NODE: Final = "the certificate names no node of this cluster"


class NameCheck(grpc.aio.ServerInterceptor):
    """See the top of this file."""

    def __init__(self, node_ids: Container[str], note: Callable[[str, str], None]) -> None:
        """`node_ids`: those of the cluster. Each call asks anew: members come and leave.

        `note` is told why a call is refused, and where it came from.
        """
        self._node_ids, self._note = node_ids, note

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """The handler of a call, which looks at its caller's certificate first."""
        handler: Any = await continuation(handler_call_details)
        if handler is None:
            return None
        # On the wire all kinds of calls are the same; of a stream gRPC reads nothing unasked.
        made: Handler = grpc.stream_stream_rpc_method_handler(
            self._checked(handler), handler.request_deserializer, handler.response_serializer
        )
        return made

    def _checked(self, handler: Any) -> Any:
        serve = (
            handler.unary_unary
            or handler.unary_stream
            or handler.stream_unary
            or handler.stream_stream
        )

        async def serve_named(requests: Any, context: Any) -> None:
            await self._check(context)
            request = requests if handler.request_streaming else await _only(requests, context)
            answered = serve(request, context)
            if inspect.isasyncgen(answered):
                async for one in answered:
                    await context.write(one)
                return
            answer = await answered
            if not handler.response_streaming:  # else it has written its answers itself
                await context.write(answer)

        return serve_named

    async def _check(self, context: Any) -> None:
        found = context.auth_context().get(_PEM, ())
        if not found or not any(name in self._node_ids for name in names_of(found[0])):
            self._note(_NO_NODE, context.peer())
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, _NO_NODE)


async def _only(requests: Any, context: Any) -> Any:
    """The request of a call that has one."""
    async for request in requests:
        return request
    return await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a call without a request")


@lru_cache(_CERTIFICATES_MAX)
def names_of(pem: bytes) -> frozenset[str]:
    """Whom a certificate was given to: its DNS names; the common name where there are none."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        hosts = found.value.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        hosts = []
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return frozenset()
    common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return frozenset(hosts or (str(one.value) for one in common))
