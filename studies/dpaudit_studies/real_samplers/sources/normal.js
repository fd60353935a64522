// node --random-seed=SEED normal.js METHOD SEED: V8's Math.random, and packages of npm.
const method = process.argv[2];
function boxMuller() {
  const r = Math.sqrt(-2 * Math.log(1 - Math.random()));
  return r * Math.cos(2 * Math.PI * Math.random());
}
function polar() {
  for (;;) {
    const x = 2 * Math.random() - 1, y = 2 * Math.random() - 1, s = x * x + y * y;
    if (s > 0 && s < 1) return x * Math.sqrt(-2 * Math.log(s) / s);
  }
}
const made = {
  'box-muller': () => boxMuller,
  polar: () => polar,
  'd3-random': () => require('d3-random').randomNormal(0, 1),
  'random-normal': () => require('random-normal'),
  gaussian: () => { const law = require('gaussian')(0, 1); return () => law.ppf(Math.random()); },
  jstat: () => { const { jStat } = require('jstat'); return () => jStat.normal.sample(0, 1); },
  chance: () => { const Chance = require('chance'), c = new Chance(Number(process.argv[3])); return () => c.normal(); },
  '@stdlib/random-base-randn': () => require('@stdlib/random-base-randn').factory({ seed: Number(process.argv[3]) }),
  'simple-statistics': () => { const s = require('simple-statistics'); return () => s.probit(Math.random()); },
};
const draw = made[method]();
const fs = require('fs');
function send(n) {
  const out = Buffer.from(Float64Array.from({ length: n }, () => draw()).buffer);
  for (let at = 0; at < out.length;) {
    try { at += fs.writeSync(1, out, at); } catch (error) { if (error.code !== 'EAGAIN') throw error; }
  }
}
require('readline').createInterface({ input: process.stdin }).on('line', line => send(Number(line)));
