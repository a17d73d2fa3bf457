// The page checks itself: every number that can be computed from others is, and the difference is kept.
//
// What needs no weights is recomputed. A linear map is recomputed where its weights travelled; elsewhere its stored
// projection must agree: x·(Wᵀr) + b·r = y·r, with r of signs, so that no number can hide behind a small factor.

import { compute, dot, filled, indexOf, inHeads, isComputable, logSumExp, maximum, sourceOf } from './trace.js';

// What rounding may do, as a share of the tensor's standard deviation; an error of a hundredth of it is seen.
const ROUNDING = 2e-3;

// Check one tensor: {name, kind, most, worst, isRight}. `most` is the largest difference, at the index `worst`.
export function checkTensor(trace, tensor) {
  if (tensor.derived) return judged(tensor, 'derived', 1, 0);
  if (isComputable(tensor.op)) return compared(trace, tensor, 'recomputed', compute(trace, tensor));
  if (trace.document.weights?.[tensor.name]) return compared(trace, tensor, 'weights', multiplied(trace, tensor));
  if (tensor.check) return projected(trace, tensor);
  return judged(tensor, 'given', 1, 0);
}

// The recorded spread and not that of the numbers at hand: a large error would excuse itself.
function spreadOf(trace, tensor) {
  const recorded = tensor.stats?.[3];
  if (recorded > 0 && Number.isFinite(recorded)) return recorded;
  return maximum([0, ...trace.data(tensor.name).map(Math.abs).filter(Number.isFinite)]) || 1;
}

// The largest of n differences, at the index `place(i)`; what is not a number is infinitely wrong.
function judged({ name }, kind, spread, n, difference, place) {
  let [most, worst] = [0, null];
  for (let i = 0; i < n; i++) {
    const off = difference(i);
    if (off <= most) continue;
    most = Number.isNaN(off) ? Infinity : off;
    worst = i;
  }
  return { name, kind, most, worst: worst === null ? null : place(worst), isRight: most <= ROUNDING * spread };
}

function compared(trace, tensor, kind, expected) {
  const stored = trace.data(tensor.name);
  const difference = (i) => (stored[i] === expected[i] ? 0 : Math.abs(stored[i] - expected[i]));
  const place = (i) => indexOf(tensor.shape, i);
  return judged(tensor, kind, spreadOf(trace, tensor), stored.length, difference, place);
}

function multiplied(trace, tensor) {
  return filled(tensor.shape, (...index) => {
    const { row, column } = sourceOf(tensor, index);
    const { weights, bias } = trace.column(tensor.name, column);
    return dot(trace.row(tensor.in[0], [row]), weights, bias);
  });
}

function outputIndex({ op, shape }, row, column) {
  return op === 'heads' ? inHeads(shape, row, column) : [row, column];
}

// Both sides of the stored projection of one row: {input, output}.
export function projections(trace, tensor, row) {
  const { r, in: off, bias } = tensor.check;
  const x = trace.row(tensor.in[0], [row]);
  const input = dot(x, trace.floats.subarray(off, off + x.length), bias ?? 0);
  const output = [...r].reduce((sum, sign, column) => {
    const y = trace.value(tensor.name, outputIndex(tensor, row, column));
    return sum + (sign === '+' ? y : -y);
  }, 0);
  return { input, output };
}

function projected(trace, tensor) {
  const [nRows] = trace.tensors.get(tensor.in[0]).shape;
  const difference = (row) => {
    const { input, output } = projections(trace, tensor, row);
    return Math.abs(input - output);
  };
  const place = (row) => outputIndex(tensor, row, 0);
  return judged(tensor, 'projected', spreadOf(trace, tensor), nRows, difference, place);
}

// Check everything, a slice at a time so that the page stays awake; tell of each state.
export async function checkAll(trace, tell) {
  const results = [];
  let pause = performance.now();
  for (const tensor of trace.document.tensors) {
    results.push(checkTensor(trace, tensor));
    if (performance.now() - pause > 12) {
      tell(results, false);
      await new Promise((resolve) => setTimeout(resolve));
      pause = performance.now();
    }
  }
  tell([...results, ...checkSteps(trace)], true);
}

// What a step says of its vocabulary (largest logits, log-sum-exp, log-probabilities) must follow from the logits.
function checkSteps(trace) {
  if (!trace.has('out.logits')) return [];
  const { steps } = trace.document;
  const spread = trace.tensors.get('out.logits').stats[3] || 1;
  const difference = (t) => {
    const row = trace.row('out.logits', [t]);
    const known = steps[t].top.filter((word) => word.logit !== null);
    const logits = known.map((word) => Math.abs(row[word.id] - word.logit));
    return Math.max(Math.abs(logSumExp(row) - steps[t].lse), ...logits);
  };
  const place = (t) => [t, steps[t].chosen];
  return [{ ...judged({ name: 'steps' }, 'recomputed', spread, steps.length, difference, place), at: 'out.logits' }];
}
