'use strict';

// What gRPC's status details hold: grpc-js hands them over as bytes.
const protobuf = require('protobufjs');

const rpc = protobuf.parse(`
  syntax = "proto3";
  package google.rpc;
  message Any { string type_url = 1; bytes value = 2; }
  message Status { int32 code = 1; string message = 2; repeated Any details = 3; }
  message ErrorInfo { string reason = 1; string domain = 2; map<string, string> metadata = 3; }
`).root;
const Status = rpc.lookupType('google.rpc.Status');
const ErrorInfo = rpc.lookupType('google.rpc.ErrorInfo');

/**
 * What a program decides by (docs/ERRORS.md): Hourwheel's reason, or where the call did not get as
 * far as a node, the name of gRPC's own code.
 */
function reason(error, codes) {
  for (const bytes of error.metadata?.get('grpc-status-details-bin') ?? []) {
    for (const detail of Status.decode(bytes).details) {
      if (!detail.typeUrl.endsWith('/google.rpc.ErrorInfo')) continue;
      const info = ErrorInfo.decode(detail.value);
      if (info.domain === 'hourwheel') return info.reason;
    }
  }
  return codes[error.code] ?? String(error);
}

module.exports = { reason };
