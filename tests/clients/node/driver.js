// Drives kafkajs: commands in, answers out, a JSON object a line.
// The commands (create, produce, consume) and their fields are described in tests/clients/drivers.py.
'use strict';

const { readFileSync } = require('node:fs');
const readline = require('node:readline');
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs');
const fzstd = require('fzstd');
const lz4 = require('lz4-napi');
const snappy = require('snappyjs');
const zstd = require('@foxglove/wasm-zstd');

const XERIAL = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0x00]);

function xerialChunks(buffer) {
  const chunks = [];
  for (let at = 16; at < buffer.length; ) {
    const size = buffer.readUInt32BE(at);
    chunks.push(snappy.uncompress(buffer.subarray(at + 4, at + 4 + size)));
    at += 4 + size;
  }
  return Buffer.concat(chunks);
}

CompressionCodecs[CompressionTypes.Snappy] = () => ({
  compress: async (encoder) => Buffer.from(snappy.compress(encoder.buffer)),
  decompress: async (buffer) =>
    buffer.subarray(0, 8).equals(XERIAL) ? xerialChunks(buffer) : Buffer.from(snappy.uncompress(buffer)),
});
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: (buffer) => lz4.decompressFrame(buffer),
});
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async (buffer) => Buffer.from(fzstd.decompress(buffer)),
});

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};

const bytes = (text) => (text === null ? null : Buffer.from(text, 'base64'));
const text = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString('base64'));

function client(command) {
  return new Kafka({
    brokers: [command.bootstrap],
    clientId: 'kafkajs-driver',
    logLevel: logLevel.NOTHING,
    ...(command.security ? protection(command.security) : {}),
  });
}

function protection({ authority, certificate, mechanism, username, password, token }) {
  const own = certificate ? { cert: readFileSync(certificate), key: readFileSync(certificate) } : {};
  const found = { ssl: { ca: [readFileSync(authority)], ...own } };
  if (mechanism === 'OAUTHBEARER') {
    found.sasl = { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: token }) };
  } else if (mechanism) {
    found.sasl = { mechanism: mechanism.toLowerCase(), username, password };
  }
  return found;
}

async function create(command) {
  const admin = client(command).admin();
  await admin.connect();
  const topic = { topic: command.topic, numPartitions: command.partitions, replicationFactor: 1 };
  await admin.createTopics({ topics: [topic], waitForLeaders: true });
  await admin.disconnect();
  return {};
}

function message(record) {
  const headers = Object.fromEntries(record.headers.map(([name, value]) => [name, bytes(value)]));
  const timestamp = record.timestamp === null ? undefined : String(record.timestamp);
  return { partition: record.partition, key: bytes(record.key), value: bytes(record.value), headers, timestamp };
}

async function produce(command) {
  const producer = client(command).producer();
  await producer.connect();
  const messages = command.records.map(message);
  const results = await producer.send({ topic: command.topic, compression: CODECS[command.codec], messages });
  await producer.disconnect();
  const next = new Map(results.map((result) => [result.partition, Number(result.baseOffset)]));
  const offsets = command.records.map((record) => {
    const offset = next.get(record.partition);
    next.set(record.partition, offset + 1);
    return offset;
  });
  return { offsets };
}

function describe(partition, record) {
  const headers = Object.entries(record.headers || {}).map(([name, value]) => [name, text(value)]);
  return {
    partition,
    offset: Number(record.offset),
    timestamp: Number(record.timestamp),
    key: text(record.key),
    value: text(record.value),
    headers,
  };
}

async function startOffset(kafka, command) {
  if (command.timestamp === undefined || command.timestamp === null) {
    return String(command.offset);
  }
  const admin = kafka.admin();
  await admin.connect();
  const found = await admin.fetchTopicOffsetsByTimestamp(command.topic, command.timestamp);
  await admin.disconnect();
  return found.find((each) => each.partition === command.partition).offset;
}

// kafkajs has no assignment by hand: it joins a group and seeks.
async function consume(command) {
  const kafka = client(command);
  const offset = await startOffset(kafka, command);
  const groupId = `kafkajs-${process.pid}-${Date.now()}-${Math.random()}`;
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 200 });
  await consumer.connect();
  await consumer.subscribe({ topics: [command.topic], fromBeginning: true });
  const records = [];
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${records.length} of ${command.count} records after 120 s`)), 120000);
    const eachMessage = async ({ partition, message: record }) => {
      if (partition === command.partition && Number(record.offset) >= Number(offset) && records.length < command.count) {
        records.push(describe(partition, record));
      }
      if (records.length === command.count) {
        clearTimeout(timer);
        resolve();
      }
    };
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    consumer.run({ autoCommit: false, eachMessage }).catch(reject);
    consumer.seek({ topic: command.topic, partition: command.partition, offset });
  });
  await consumer.disconnect();
  return { records };
}

const COMMANDS = { create, produce, consume };

async function main() {
  await zstd.isLoaded;
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let answer;
    try {
      const command = JSON.parse(line);
      answer = await COMMANDS[command.op](command);
    } catch (failure) {
      answer = { error: `${failure.name}: ${failure.message}` };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
  process.exit(0);
}

main();
