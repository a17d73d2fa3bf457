// A trace: the document of one translation, its tensors by address, and each operation's arithmetic.
//
// An address is `side.layer.part[.hN].tensor[i,j]`; `.hN` picks one head of the one tensor that is stored.

const ADDRESS = /^([\w.]+?)(?:\[([\d,\s]+)\])?$/;
const HEAD = /\.h(\d+)(?=\.)/;

export async function openTrace(document) {
  if (document.format !== 'glassformer-trace' || document.version !== 1) {
    throw new Error(`expected glassformer-trace version 1, got ${document.format} version ${document.version}`);
  }
  return new Trace(document, await unpack(document.blob));
}

async function unpack(blob) {
  const bytes = Uint8Array.fromBase64?.(blob.data) ?? Uint8Array.from(atob(blob.data), (one) => one.charCodeAt());
  if (!blob.encoding.includes('deflate')) return new Float32Array(bytes.buffer);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  return new Float32Array(await new Response(stream).arrayBuffer());
}

export class Trace {
  constructor(document, floats) {
    this.document = document;
    this.floats = floats;
    this.config = document.model.config;
    this.tensors = new Map(document.tensors.map((tensor) => [tensor.name, tensor]));
    this.made = new Map(); // derived tensors, computed when first asked for
    this.columns = new Map(); // columns of weights that the live server gave
    this.nSource = document.tokens.src.length;
    this.nSteps = document.steps.length;
  }

  has(name) {
    return this.tensors.has(name);
  }

  // All numbers of a tensor, in rows. A tensor that did not travel is computed from its inputs.
  data(name) {
    const tensor = this.tensors.get(name);
    if (!tensor) throw new Error(`no tensor is called ${name}`);
    if (!tensor.derived) return this.floats.subarray(tensor.off, tensor.off + sizeOf(tensor.shape));
    if (!this.made.has(name)) this.made.set(name, Float32Array.from(compute(this, tensor)));
    return this.made.get(name);
  }

  // A constant of an operation that is a list of numbers, such as gamma.
  constants(tensor, key) {
    const { off, shape } = tensor.constants[key];
    return this.floats.subarray(off, off + sizeOf(shape));
  }

  value(name, index) {
    return this.data(name)[place(this.tensors.get(name).shape, index)];
  }

  // Take an address apart: the tensor, and an index with the head in front where there are heads.
  parse(text) {
    const match = ADDRESS.exec(text.trim());
    if (!match) return null;
    const head = HEAD.exec(match[1]);
    const name = match[1].replace(HEAD, '');
    const tensor = this.tensors.get(name);
    if (!tensor) return null;
    const index = match[2] ? match[2].split(',').map(Number) : [];
    if (head) index.unshift(Number(head[1]));
    if (head && tensor.axes[0] !== 'head') return null;
    if (index.length > tensor.shape.length || index.some((at, axis) => !(at < tensor.shape[axis]))) return null;
    return { name, index, tensor };
  }

  at(text) {
    const found = this.parse(text);
    if (!found || found.index.length !== found.tensor.shape.length) return NaN;
    return this.value(found.name, found.index);
  }

  address(name, index) {
    const hasHeads = this.tensors.get(name).axes[0] === 'head';
    const whole = hasHeads ? name.replace(/\.(?=\w+$)/, `.h${index[0]}.`) : name;
    const rest = hasHeads ? index.slice(1) : index;
    return rest.length ? `${whole}[${rest.join(',')}]` : whole;
  }

  // A row of a tensor as numbers: the last axis, everything before it fixed.
  row(name, index) {
    const { shape } = this.tensors.get(name);
    const width = shape[shape.length - 1];
    const start = place(shape.slice(0, -1), index) * width;
    return this.data(name).subarray(start, start + width);
  }

  // The weights that make one column of a linear tensor, if they are here: {weights, bias} or null.
  column(name, column) {
    const stored = this.document.weights?.[name];
    if (!stored) return this.columns.get(`${name}:${column}`) ?? null;
    const width = stored.shape[1];
    const start = stored.off + column * width;
    const hasBias = Number.isInteger(stored.bias_off);
    const bias = hasBias ? this.floats[stored.bias_off + column] : 0;
    return { weights: this.floats.subarray(start, start + width), bias };
  }
}

export function range(n) {
  return [...Array(n).keys()];
}

export function sizeOf(shape) {
  return shape.reduce((product, size) => product * size, 1);
}

function place(shape, index) {
  return index.reduce((sum, at, axis) => sum * shape[axis] + at, 0);
}

export function indexOf(shape, at) {
  return shape.map((size, axis) => Math.floor(at / sizeOf(shape.slice(axis + 1))) % size);
}

// A tensor from a function of its index, which counts like an odometer.
export function filled(shape, f) {
  const index = shape.map(() => 0);
  return new Float64Array(sizeOf(shape)).map(() => {
    const value = f(...index);
    for (let axis = shape.length - 1; axis >= 0 && ++index[axis] === shape[axis]; axis--) index[axis] = 0;
    return value;
  });
}

export function maximum(row) {
  let best = -Infinity;
  for (const x of row) best = x > best ? x : best;
  return best;
}

export function softmaxOf(row) {
  const top = maximum(row);
  const shares = Float64Array.from(row, (x) => Math.exp(x - top));
  const sum = total(shares);
  return shares.map((x) => x / sum);
}

export function logSumExp(row) {
  const top = maximum(row);
  return top + Math.log(total(row, (x) => Math.exp(x - top)));
}

// In bits: 0 for one certain choice, log2(n) for n equal ones.
export function entropyOf(shares) {
  return total(shares, (p) => (p > 0 ? -p * Math.log2(p) : 0));
}

export function dot(a, b, start = 0) {
  let sum = start;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

export function norm(row) {
  return Math.sqrt(dot(row, row));
}

export function cosine(a, b) {
  return dot(a, b) / (norm(a) * norm(b) || 1);
}

function erf(x) {
  if (Math.abs(x) > 5) return Math.sign(x);
  let term = x;
  let sum = x;
  for (let n = 1; Math.abs(term) > 1e-17 && n < 200; n++) {
    term *= (-x * x) / n;
    sum += term / (2 * n + 1);
  }
  return (2 / Math.sqrt(Math.PI)) * sum;
}

// Operations that can be computed from what is in the document, without weights.
export function isComputable(op) {
  return op in COMPUTE;
}

// Compute a tensor again from its recorded inputs, in double precision.
export function compute(trace, tensor) {
  return COMPUTE[tensor.op](trace, tensor, ...tensor.in.map((name) => trace.data(name)));
}

// Whether the mask lets this query see this key: one string of 0 and 1 a query.
export function isAllowed(tensor, query, key) {
  const rows = tensor.constants.allowed;
  return rows[Math.min(query, rows.length - 1)][key] === '1';
}

// The sinusoid of one position and channel: its value, and how it is written.
function waveOf({ shape: [, width], constants: { layout, start = 0 } }, at, channel) {
  const half = width / 2;
  const pair = layout === 'halves' ? channel % half : channel >> 1;
  const isSine = layout === 'halves' ? channel < half : channel % 2 === 0;
  const angle = (start + at) / 10000 ** ((2 * pair) / width);
  const written = `${isSine ? 'sin' : 'cos'}(${start + at} / 10000^(${2 * pair} / ${width}))`;
  return { value: isSine ? Math.sin(angle) : Math.cos(angle), written };
}

// The row of the input and the column of the weights that make a number of a linear tensor.
export function sourceOf({ op, shape }, index) {
  if (op !== 'heads') return { row: index[0], column: index.at(-1) };
  return { row: index[1], column: index[0] * shape[2] + index[2] };
}

// The angle by which rotary positions turn the pair that number i of a tensor (heads, positions, channels) is in.
function turnOf(tensor, i) {
  const [, rows, width] = tensor.shape;
  const { start = 0, base = 10000 } = tensor.constants;
  const position = start + (Math.floor(i / width) % rows);
  const pair = Math.floor((i % width) / 2);
  const angle = position / base ** ((2 * pair) / width);
  return { cos: Math.cos(angle), sin: Math.sin(angle), written: `${position} / ${base}^(${2 * pair} / ${width})` };
}

// Where a channel of all heads lies in a tensor (heads, positions, channels).
export function inHeads([, , width], row, channel) {
  return [Math.floor(channel / width), row, channel % width];
}

function mapped(f) {
  return (trace, tensor, x) => Float64Array.from(x, f);
}

export function total(row, f = (x) => x) {
  let sum = 0;
  for (const x of row) sum += f(x);
  return sum;
}

export function average(row, f) {
  return total(row, f) / row.length;
}

function perRow(width, x, f) {
  const out = new Float64Array(x.length);
  for (let start = 0; start < x.length; start += width) out.set(f(x.subarray(start, start + width)), start);
  return out;
}

const COMPUTE = {
  relu: mapped((x) => Math.max(0, x)),
  gelu: mapped((x) => (x * (1 + erf(x / Math.SQRT2))) / 2),
  silu: mapped((x) => x / (1 + Math.exp(-x))),
  scale: (trace, tensor, x) => Float64Array.from(x, (value) => value * tensor.constants.factor),
  add: (trace, tensor, a, b) => Float64Array.from(a, (value, i) => value + b[i]),
  sinusoid: (trace, tensor) => filled(tensor.shape, (at, channel) => waveOf(tensor, at, channel).value),
  rotate: (trace, tensor, x) => Float64Array.from(x, (value, i) => {
    const { cos, sin } = turnOf(tensor, i);
    return i % 2 ? x[i - 1] * sin + value * cos : value * cos - x[i + 1] * sin;
  }),
  matmul_t(trace, { shape, in: [queries, keys] }) {
    return filled(shape, (h, q, k) => dot(trace.row(queries, [h, q]), trace.row(keys, [h, k])));
  },
  mask(trace, tensor, x) {
    const [, queries, keys] = tensor.shape;
    const isOpen = (i) => isAllowed(tensor, Math.floor(i / keys) % queries, i % keys);
    return Float64Array.from(x, (value, i) => (isOpen(i) ? value : -Infinity));
  },
  softmax: (trace, tensor, x) => perRow(tensor.shape.at(-1), x, softmaxOf),
  log_softmax: (trace, tensor, x) =>
    perRow(tensor.shape.at(-1), x, (row) => {
      const all = logSumExp(row);
      return Float64Array.from(row, (value) => value - all);
    }),
  weighted_sum(trace, { shape, in: [weights] }, _, values) {
    return filled(shape, (h, q, c) => {
      const shares = trace.row(weights, [h, q]);
      return shares.reduce((sum, share, k) => sum + share * values[(h * shares.length + k) * shape[2] + c], 0);
    });
  },
  concat(trace, { shape, in: [context] }) {
    const { shape: split } = trace.tensors.get(context);
    return filled(shape, (row, channel) => trace.value(context, inHeads(split, row, channel)));
  },
  mean: (trace, { shape, in: [x] }) => filled(shape, (r) => average(trace.row(x, [r]))),
  variance(trace, { shape, in: [x] }, _, mean) {
    return filled(shape, (r) => average(trace.row(x, [r]), (value) => (value - mean[r]) ** 2));
  },
  normalise(trace, tensor, x, mean, variance) {
    const row = (i) => Math.floor(i / tensor.shape[1]);
    const { eps } = tensor.constants;
    return Float64Array.from(x, (value, i) => (value - mean[row(i)]) / Math.sqrt(variance[row(i)] + eps));
  },
  affine(trace, tensor, x) {
    const width = tensor.shape[1];
    const [gamma, beta] = [trace.constants(tensor, 'gamma'), trace.constants(tensor, 'beta')];
    return Float64Array.from(x, (value, i) => value * gamma[i % width] + beta[i % width]);
  },
};

// How one number came about: {tensor, name, address, value, operands, terms, equation, note}.
//
// `equation` is a list of texts and numbers {value, address} that reads as arithmetic up to its result;
// `terms` are the summands of a long sum, each with its factors; `note` names a sentence of the dictionary.
export function explainCell(trace, name, index) {
  const tensor = trace.tensors.get(name);
  const told = CELL[tensor.op](trace, tensor, index, tensor.in.map((input) => reader(trace, input)));
  const parts = told.terms?.flatMap((term) => term.factors) ?? told.equation ?? [];
  const operands = told.operands ?? [...new Set(parts)].filter((part) => part.address && trace.parse(part.address));
  return { tensor, name, address: trace.address(name, index), value: trace.value(name, index), ...told, operands };
}

// One number of an input, or all of a row.
function reader(trace, name) {
  const at = (index) => ({ value: trace.value(name, index), address: trace.address(name, index) });
  const row = (index) => range(trace.tensors.get(name).shape.at(-1)).map((c) => at([...index, c]));
  return { at, row, address: (index) => trace.address(name, index) };
}

export function bySize(list) {
  return [...list].sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
}

// A sum of products, the largest first; `summands` says what they are counted by.
function summed(pairs, summands, extra = []) {
  const terms = pairs.map(([a, b], at) => ({ at, value: a.value * b.value, factors: [a, b] }));
  return { terms: bySize(terms), summands, extra };
}

function root(factor) {
  const square = factor > 1 ? factor ** 2 : factor ** -2;
  const isWhole = Math.abs(square - Math.round(square)) < 1e-6 * square;
  return isWhole && square > 1.4 ? [factor > 1 ? '×' : '/', Math.round(square)] : null;
}

function pointwise(symbols) {
  return (trace, tensor, index, [x]) => ({ equation: symbols(x.at(index)) });
}

function linearCell(trace, tensor, index, [x]) {
  const { row, column } = sourceOf(tensor, index);
  const { name } = tensor;
  const inputs = x.row([row]);
  const found = trace.column(name, column);
  if (!found) return { note: 'noteNoWeights', wants: { name, column }, row, operands: inputs };
  const weight = (value, c) => ({ value, address: `W(${name})[${column},${c}]` });
  const bias = found.bias ? [{ value: found.bias, address: `b(${name})[${column}]` }] : [];
  return summed(inputs.map((one, c) => [one, weight(found.weights[c], c)]), 'channels', bias);
}

const CELL = {
  given: () => ({}),
  gather: (trace, tensor, index, [ids]) => ({ operands: [ids.at([index[0]])] }),
  rows: () => ({}),
  sinusoid: (trace, tensor, [at, channel]) => ({ equation: [waveOf(tensor, at, channel).written] }),
  scale(trace, { name, constants: { factor } }, index, [x]) {
    const exact = root(factor);
    const times = exact ? [` ${exact[0]} √${exact[1]}`] : [' × ', { value: factor, address: `factor(${name})` }];
    return { equation: [x.at(index), ...times] };
  },
  add: (trace, tensor, index, [a, b]) => ({ equation: [a.at(index), ' + ', b.at(index)] }),
  rotate(trace, tensor, index, [x]) {
    const [channel, before] = [index.at(-1), index.slice(0, -1)];
    const isFirst = channel % 2 === 0;
    const own = x.at(index);
    const other = x.at([...before, isFirst ? channel + 1 : channel - 1]);
    const { written } = turnOf(tensor, place(tensor.shape, index));
    const [cos, sin] = [` × cos(${written})`, ` × sin(${written})`];
    const equation = isFirst ? [own, cos, ' − ', other, sin] : [other, sin, ' + ', own, cos];
    return { equation, operands: [own, other] };
  },
  linear: linearCell,
  heads: linearCell,
  matmul_t(trace, tensor, [head, query, key], [queries, keys]) {
    const others = keys.row([head, key]);
    return summed(queries.row([head, query]).map((one, c) => [one, others[c]]), 'channels');
  },
  mask(trace, tensor, index, [x]) {
    const operand = x.at(index);
    const isOpen = isAllowed(tensor, index[1], index[2]);
    return isOpen ? { equation: [operand] } : { note: 'noteMasked', operands: [operand] };
  },
  softmax(trace, tensor, index, [x]) {
    const before = index.slice(0, -1);
    const row = trace.row(tensor.in[0], before);
    const top = { value: maximum(row), address: `max(${x.address(before)})` };
    const all = total(row, (value) => Math.exp(value - top.value));
    const below = { value: all, address: `sum(exp(${x.address(before)}-max))` };
    return { equation: ['exp(', x.at(index), ' − ', top, ') / ', below], note: 'noteSoftmax' };
  },
  log_softmax(trace, tensor, index, [x]) {
    const before = index.slice(0, -1);
    const all = logSumExp(trace.row(tensor.in[0], before));
    return { equation: [x.at(index), ' − ', { value: all, address: `logsumexp(${x.address(before)})` }] };
  },
  weighted_sum(trace, tensor, [head, query, channel], [weights, values]) {
    const summands = trace.tensors.get(tensor.in[0]).axes[2].slice(0, 3);
    const pairs = weights.row([head, query]).map((share, key) => [share, values.at([head, key, channel])]);
    return summed(pairs, summands);
  },
  concat(trace, tensor, [row, channel], [context]) {
    const { shape } = trace.tensors.get(tensor.in[0]);
    return { equation: [context.at(inHeads(shape, row, channel))] };
  },
  mean(trace, tensor, [row], [x]) {
    const operands = x.row([row]);
    const all = { value: total(operands, (one) => one.value), address: `sum(${x.address([row])})` };
    return { equation: [all, ` / ${operands.length}`], operands };
  },
  variance(trace, tensor, [row], [x, mean]) {
    const middle = mean.at([row, 0]);
    const operands = x.row([row]);
    const squares = total(operands, (one) => (one.value - middle.value) ** 2);
    const all = { value: squares, address: `sum((${x.address([row])}-${middle.address})^2)` };
    return { equation: [all, ` / ${operands.length}`], operands: [middle, ...operands] };
  },
  normalise(trace, { constants: { eps } }, [row, channel], [x, mean, variance]) {
    const below = [') / √(', variance.at([row, 0]), ` + ${eps})`];
    return { equation: ['(', x.at([row, channel]), ' − ', mean.at([row, 0]), ...below] };
  },
  affine(trace, tensor, [row, channel], [x]) {
    const constant = (key) => {
      return { value: trace.constants(tensor, key)[channel], address: `${key}(${tensor.name})[${channel}]` };
    };
    return { equation: [x.at([row, channel]), ' × ', constant('gamma'), ' + ', constant('beta')] };
  },
  relu: pointwise((x) => ['max(0, ', x, ')']),
  gelu: pointwise((x) => [x, ' × Φ(', x, ')']),
  silu: pointwise((x) => [x, ' / (1 + exp(0 − ', x, '))']),
};
