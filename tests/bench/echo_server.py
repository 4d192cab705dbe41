"""The least that a grpc.aio server can do with a Publish call: what `unary` compares with.

python -m tests.bench.echo_server bytes|messages: prints its port and serves until it is killed.
"""

import asyncio
import sys
from typing import Any, Final

import grpc

from hourwheel.v1 import broker_pb2

SERVICE: Final = "hourwheel.v1.ProducerService"


async def _echo(request: Any, _: Any) -> Any:
    return request


def _handler(kind: str) -> "grpc.RpcMethodHandler[Any, Any]":
    """`bytes`: gives back the bytes it got. `messages`: reads a message and writes it again."""
    if kind == "bytes":
        return grpc.unary_unary_rpc_method_handler(_echo)
    request = broker_pb2.PublishRequest
    return grpc.unary_unary_rpc_method_handler(_echo, request.FromString, request.SerializeToString)


async def _serve(kind: str) -> None:
    server = grpc.aio.server()
    handlers = {"Publish": _handler(kind)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
