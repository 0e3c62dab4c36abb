// clients KIND WHERE COUNT MODULES: as clients.py, from node.  KIND and WHERE: redlock PORT, redis-semaphore PORT,
// proper-lockfile FILE, lease FILE.  MODULES is a directory with node_modules.
"use strict";
const fs = require("fs");
const [kind, where, count, modules] = process.argv.slice(2);
const load = require("module").createRequire(modules + "/");
const WARM_UP = 50;

function client() {
  if (kind === "redlock") {
    const Redis = load("ioredis");
    const { default: Redlock } = load("redlock5");
    const redlock = new Redlock([new Redis({ host: "127.0.0.1", port: Number(where) })]);
    return async () => (await redlock.acquire(["clients"], 30000)).release();
  }
  if (kind === "redis-semaphore") {
    const Redis = load("ioredis");
    const { Mutex } = load("redis-semaphore");
    const mutex = new Mutex(new Redis({ host: "127.0.0.1", port: Number(where) }), "clients");
    return async () => {
      await mutex.acquire();
      await mutex.release();
    };
  }
  if (kind === "proper-lockfile") {
    const lockfile = load("proper-lockfile");
    fs.writeFileSync(where, "");
    return async () => (await lockfile.lock(where))();
  }
  return async () => {
    await fs.promises.writeFile(where, "", { flag: "wx" });
    await fs.promises.unlink(where);
  };
}

async function main() {
  const cycle = client();
  const took = [];
  for (let i = 0; i < WARM_UP + Number(count); i++) {
    const began = process.hrtime.bigint();
    await cycle();
    if (i >= WARM_UP) took.push(Number(process.hrtime.bigint() - began));
  }
  took.sort((a, b) => a - b);
  console.log(...[500, 900, 990].map((permille) => took[Math.floor(((took.length - 1) * permille) / 1000)]));
  process.exit(0);
}

main();
