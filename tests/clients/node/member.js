// A member of a consumer group with kafkajs: member.js BOOTSTRAP GROUP TOPIC JOURNAL. What it does and notes stands in
// tests/clients/group_member.py. kafkajs does not tell its generation.
'use strict';

const fs = require('node:fs');
const { Kafka, logLevel } = require('kafkajs');

const [bootstrap, groupId, topic, path] = process.argv.slice(2);
const journal = fs.openSync(path, 'a');
let owned = [];

function note(event, values) {
  const at = Number(process.hrtime.bigint()) / 1e9;
  fs.writeSync(journal, `${JSON.stringify({ at, event, ...values })}\n`);
}

function gone(event) {
  if (owned.length > 0) {
    note(event, { partitions: owned });
    owned = [];
  }
}

async function eachBatch(consumer, { batch, resolveOffset, heartbeat, isRunning, isStale }) {
  if (!isRunning() || isStale() || batch.messages.length === 0) {
    return;
  }
  const { partition } = batch;
  const first = Number(batch.messages[0].offset);
  const last = Number(batch.messages[batch.messages.length - 1].offset);
  note('read', { partition, first, last });
  resolveOffset(String(last));
  await consumer.commitOffsets([{ topic, partition, offset: String(last + 1) }]);
  note('committed', { partition, offset: last + 1 });
  await heartbeat();
}

async function main() {
  // It asks for the coordinator only when it begins anew; while it retries it turns to the old one (even to one that
  // the metadata knows no more).
  const retry = { initialRetryTime: 50, maxRetryTime: 500, retries: 5 };
  const brokers = bootstrap.split(',');
  const kafka = new Kafka({ brokers, retry, connectionTimeout: 3000, requestTimeout: 10000, logLevel: logLevel.ERROR });
  const consumer = kafka.consumer({
    groupId,
    sessionTimeout: 6000,
    heartbeatInterval: 300,
    maxWaitTimeInMs: 200,
    metadataMaxAge: 2000,
    retry,
  });
  consumer.on(consumer.events.REBALANCING, () => gone('revoked'));
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    gone('lost'); // It was not told to rebalance before: the coordinator did not know it any more.
    owned = payload.memberAssignment[topic] || [];
    note('assigned', { partitions: owned, generation: null });
  });
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    gone('lost');
    console.error('crash', payload.restart, payload.error);
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch: (each) => eachBatch(consumer, each) });
  process.once('SIGTERM', async () => {
    await consumer.stop();
    gone('revoked');
    await consumer.disconnect();
    process.exit(0);
  });
}

main();
