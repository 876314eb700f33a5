import { simulate } from './simulation.ts';
const from = Number(process.argv[2] ?? 1), n = Number(process.argv[3] ?? 1);
const t = performance.now();
for (let s = from; s < from + n; s++) {
  const o = await simulate(s, process.argv[4] ? (l) => console.log(l) : undefined);
  if (o.violation || n === 1) console.log(s, o.violation ?? 'ok', o.traceHash.slice(0, 8), JSON.stringify(o.counts));
}
console.log(((performance.now() - t) / n).toFixed(0), 'ms/seed');
