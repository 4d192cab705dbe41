'use strict';

// A Hourwheel client in Node: it publishes with a delay, cancels, receives, acknowledges, and reads
// the reason of an error. See docs/CLIENT.md, "Clients in other languages".
const path = require('node:path');
const { promisify } = require('node:util');

const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const { reason } = require('./reason');

const TOPIC = 'orders';
const GROUP = 'billing';
const CALL_MS = 10_000; // longer than any wait below: the node answers before it is over
const WAIT_MS = 5_000;
const LEASE_MS = 30_000;
const ONE_MINUTE_MS = 60_000;

const hourwheel = grpc.loadPackageDefinition(
  protoLoader.loadSync(['hourwheel/v1/broker.proto', 'hourwheel/v1/consumer.proto'], {
    includeDirs: [path.join(__dirname, '..', '..', 'proto')],
    longs: Number, // milliseconds since 1970 are far below 2^53
    enums: String,
    defaults: true,
  }),
).hourwheel.v1;

/** One call as a promise, with a deadline. */
function call(client, method, request) {
  const deadline = new Date(Date.now() + CALL_MS);
  return promisify(client[method].bind(client))(request, new grpc.Metadata(), { deadline });
}

/** Schedule two orders, and take the second one back. */
async function publishAndCancel(producer) {
  const order = (text, delayMs) => ({
    body: Buffer.from(text),
    delayMs,
    meta: { tags: ['unpaid'] },
  });
  const messages = [order('order 17', 200), order('order 18', ONE_MINUTE_MS)];
  const published = await call(producer, 'Publish', { topic: TOPIC, messages });
  for (const { messageId, dueMs } of published.messages) {
    console.log('published', messageId, 'due', dueMs);
  }
  const paid = published.messages[1].messageId;
  const cancelled = await call(producer, 'Cancel', { messageIds: [paid] });
  console.log('cancel', paid, cancelled.outcomes[0]);
}

function receive(consumer, topic) {
  return call(consumer, 'Receive', {
    group: GROUP,
    topic,
    maxMessages: 10,
    waitMs: WAIT_MS,
    invisibleMs: LEASE_MS,
  });
}

/**
 * Wait for orders that fall due until there is one, and acknowledge what came. A message that is
 * not acknowledged within its lease comes again.
 */
async function receiveAndAck(consumer) {
  let received;
  do {
    received = await receive(consumer, TOPIC);
  } while (received.messages.length === 0);
  for (const { messageId, attempt, body, receipt } of received.messages) {
    console.log(`received ${messageId} at ${received.receiveMs}, attempt ${attempt}: ${body}`);
    const acked = await call(consumer, 'Ack', { group: GROUP, receipts: [receipt] });
    console.log('ack', messageId, acked.outcomes[0]);
  }
}

async function main(address) {
  const credentials = grpc.credentials.createInsecure();
  const producer = new hourwheel.ProducerService(address, credentials);
  const consumer = new hourwheel.ConsumerService(address, credentials);
  try {
    await publishAndCancel(producer);
    await receiveAndAck(consumer);
    await receive(consumer, 'no-such-topic').catch((error) => {
      console.log('refused', reason(error, grpc.status));
    });
  } finally {
    producer.close();
    consumer.close();
  }
}

if (process.argv.length !== 3) {
  console.error('usage: node orders.js HOST:PORT');
  process.exit(2);
}
main(process.argv[2]).catch((error) => {
  console.error(`${reason(error, grpc.status)}: ${error.message}`);
  process.exitCode = 1;
});
