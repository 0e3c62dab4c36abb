// client_npm NAME PORT[,PORT...] MODULES: a lock client of npm's; the lines are those of client_redis_py.py.
// MODULES is a directory with the node_modules of package.json.
"use strict";
const [name, ports, modules] = process.argv.slice(2);
const load = require("module").createRequire(modules + "/");
const Redis = load("ioredis");
// One that is away refuses at once, as a client of several servers needs it.
const several = { enableOfflineQueue: false, maxRetriesPerRequest: 0 };
const servers = ports.split(",").map((port, _, all) =>
  new Redis({ host: "127.0.0.1", port: Number(port), ...(all.length > 1 ? several : {}) }));
const redis = servers[0];
for (const server of servers) server.on("error", () => {});
const ready = Promise.all(servers.map((server) =>
  new Promise((done) => (server.status === "ready" ? done() : server.once("ready", done).once("error", done)))));

// How each takes a lock: once, or with so many tries.
function redlock(Redlock, Lock, take) {
  const often = new Redlock(servers, { retryCount: -1, retryDelay: 20, retryJitter: 5 });
  const once = new Redlock(servers, { retryCount: 0 });
  let held;
  return {
    acquire: async (key, ms) => (held = await take(once, key, Number(ms))),
    wait: async (key, ms, seconds) => {
      const tries = Math.ceil((seconds * 1000) / 20);
      held = await take(new Redlock(servers, { retryCount: tries, retryDelay: 20, retryJitter: 5 }), key, Number(ms));
      return held;
    },
    extend: async (ms) => (held = await held.extend(Number(ms))),
    release: async () => (held.release ? held.release() : held.unlock()),
    forge: async (key) => once.release(Lock(often, key)),
  };
}

const clients = {
  redlock4: () => {
    const Redlock = load("redlock4");
    return redlock(Redlock, (by, key) => new Redlock.Lock(by, [key], "forged", Date.now() + 60000, 1, 0),
      (by, key, ms) => by.lock(key, ms));
  },
  redlock5: () => {
    const { default: Redlock, Lock } = load("redlock5");
    return redlock(Redlock, (by, key) => new Lock(by, [key], "forged", [], Date.now() + 60000),
      (by, key, ms) => by.acquire([key], ms));
  },
  sesamecare: () => {
    const { Redlock, Lock } = load("@sesamecare-oss/redlock");
    return redlock(Redlock, (by, key) => new Lock(by, [key], "forged", [], Date.now() + 60000),
      (by, key, ms) => by.acquire([key], ms));
  },
  // Its keys begin with "mutex:", and it renews by itself: here only when it is asked to.
  semaphore: () => {
    const { Mutex } = load("redis-semaphore");
    const mutex = (key, ms, more) =>
      new Mutex(redis, key.replace(/^mutex:/, ""), { lockTimeout: Number(ms), refreshInterval: 0, ...more });
    let held, key;
    const take = async (name, ms, more) => {
      key = name;
      held = mutex(name, ms, more);
      return held.tryAcquire();
    };
    return {
      acquire: (name, ms) => take(name, ms, { acquireAttemptsLimit: 1 }),
      wait: (name, ms, seconds) => take(name, ms, { acquireTimeout: seconds * 1000, retryInterval: 20 }),
      extend: async (ms) => {
        held = mutex(key, ms, { identifier: held.identifier, acquiredExternally: true });
        return held.tryAcquire();
      },
      release: () => held.release(),
      forge: (name) => mutex(name, 1000, { identifier: "forged", acquiredExternally: true }).release(),
    };
  },
};

// What a client calls a refusal.
const refusals = /^(LockError|ExecutionError|ResourceLockedError|TimeoutError)$/;

async function answer(client, request, words) {
  const asked = request === "acquire" || request === "wait";
  try {
    const got = await client[request](...words);
    return got === false ? (asked ? "refused" : "not-held") : asked ? "held" : "ok";
  } catch (wrong) {
    if (refusals.test(wrong.name) || refusals.test(wrong.constructor.name))
      return asked ? "refused" : "not-held";
    return `${wrong.name}: ${wrong.message}`.replace(/\n/g, " ");
  }
}

async function main() {
  await ready;
  const client = clients[name]();
  for await (const line of require("readline").createInterface({ input: process.stdin })) {
    const [mark, request, ...words] = line.split(" ");
    console.log(`${mark} ${await answer(client, request, words)}`);
  }
  process.exit(0);
}

main();
