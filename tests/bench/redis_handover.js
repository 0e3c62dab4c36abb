// redis_handover PORT COUNT MODULES [hold]: as handover.py, for node-redlock 5 as it is by default, but that it
// does not give up.  MODULES is a directory with the node_modules of tests/e2e/interop/package.json.
"use strict";
const [port, count, modules, hold] = process.argv.slice(2);
const load = require("module").createRequire(modules + "/");
const Redis = load("ioredis");
const { default: Redlock } = load("redlock5");
const now = () => process.hrtime.bigint(); // CLOCK_MONOTONIC

async function main() {
  const redis = new Redis({ host: "127.0.0.1", port: Number(port) });
  const redlock = new Redlock([redis], { retryCount: -1, automaticExtensionThreshold: 500 });
  const times = [];
  const wait = async () => {
    const lock = await redlock.acquire(["lock"], 60000);
    times.push([now(), now()]);
    await lock.release();
  };
  const held = hold ? await redlock.acquire(["lock"], 60000) : null;
  const waits = [];
  console.log("ready");
  for await (const line of require("readline").createInterface({ input: process.stdin })) {
    if (line === "wait") {
      for (let i = 0; i < Number(count); i++) waits.push(wait());
    } else if (line === "release") {
      if (held) {
        console.log(`- ${now()}`);
        await held.release();
      }
      break;
    }
  }
  await Promise.all(waits);
  for (const [granted, released] of times) console.log(`${granted} ${released}`);
  process.exit(0);
}

main();
