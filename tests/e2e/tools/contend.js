// contend.js KIND L: gets the lock L as a Node program does, tells "held", lasts until its input ends, gives it back.
'use strict';
const fs = require('fs');

const kinds = {
    wx: (path) => {
        fs.writeFileSync(path, `${process.pid}\n`, {flag: 'wx'});
        return () => fs.unlinkSync(path);
    },
    proper: (path) => {
        return require('proper-lockfile').lockSync(path, {realpath: false, stale: 2000});
    },
};

const [kind, path] = process.argv.slice(2);
try {
    const release = kinds[kind](path);
    process.stdout.write('held\n');
    process.stdin.on('end', release).resume();
} catch (error) {
    process.stderr.write(`${kind}: ${error.message}\n`);
    process.exit(1);
}
