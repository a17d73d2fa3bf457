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
  const bytes = fromBase64(blob.data);
  if (!blob.encoding.includes('deflate')) return new Float32Array(bytes.buffer);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  return new Float32Array(await new Response(stream).arrayBuffer());
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
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
    const tensor = this.tensors.get(name);
    if (tensor.axes[0] !== 'head') return index.length ? `${name}[${index.join(',')}]` : name;
    const dot = name.lastIndexOf('.');
    const rest = index.slice(1);
    return `${name.slice(0, dot)}.h${index[0]}${name.slice(dot)}${rest.length ? `[${rest.join(',')}]` : ''}`;
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

export function norm(row) {
  return Math.sqrt(total(row, (x) => x * x));
}

export function cosine(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum / (norm(a) * norm(b) || 1);
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

const ELEMENTWISE = {
  relu: (x) => Math.max(0, x),
  gelu: (x) => (x * (1 + erf(x / Math.SQRT2))) / 2,
  silu: (x) => x / (1 + Math.exp(-x)),
};

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

export function sinusoidParts({ width, layout }, channel) {
  const half = width / 2;
  const pair = layout === 'halves' ? channel % half : channel >> 1;
  const isSine = layout === 'halves' ? channel < half : channel % 2 === 0;
  return { pair, isSine };
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

function mapped(f) {
  return (trace, tensor, x) => Float64Array.from(x, f);
}

function total(row, f = (x) => x) {
  let sum = 0;
  for (const x of row) sum += f(x);
  return sum;
}

// One number for each row.
function eachRow(x, nRows, f) {
  const width = x.length / nRows;
  return Float64Array.from({ length: nRows }, (_, r) => f(x.subarray(r * width, (r + 1) * width), r));
}

function perRow(width, x, f) {
  const out = new Float64Array(x.length);
  for (let start = 0; start < x.length; start += width) out.set(f(x.subarray(start, start + width)), start);
  return out;
}

const COMPUTE = {
  relu: mapped(ELEMENTWISE.relu),
  gelu: mapped(ELEMENTWISE.gelu),
  silu: mapped(ELEMENTWISE.silu),
  scale: (trace, tensor, x) => Float64Array.from(x, (value) => value * tensor.constants.factor),
  add: (trace, tensor, a, b) => Float64Array.from(a, (value, i) => value + b[i]),
  sinusoid(trace, tensor) {
    const [length, width] = tensor.shape;
    const out = new Float64Array(length * width);
    const start = tensor.constants.start ?? 0;
    for (let channel = 0; channel < width; channel++) {
      const { pair, isSine } = sinusoidParts({ width, layout: tensor.constants.layout }, channel);
      const slowness = 10000 ** ((2 * pair) / width);
      for (let at = 0; at < length; at++) {
        const angle = (start + at) / slowness;
        out[at * width + channel] = isSine ? Math.sin(angle) : Math.cos(angle);
      }
    }
    return out;
  },
  rotate(trace, tensor, x) {
    const out = new Float64Array(x.length);
    for (let i = 0; i < x.length; i += 2) {
      const { cos, sin } = turnOf(tensor, i);
      out[i] = x[i] * cos - x[i + 1] * sin;
      out[i + 1] = x[i] * sin + x[i + 1] * cos;
    }
    return out;
  },
  matmul_t(trace, tensor, a, b) {
    const [heads, queries, keys] = tensor.shape;
    const width = a.length / (heads * queries);
    const out = new Float64Array(heads * queries * keys);
    for (let h = 0, at = 0; h < heads; h++) {
      for (let q = 0; q < queries; q++) {
        for (let k = 0; k < keys; k++, at++) {
          const one = (h * queries + q) * width;
          const other = (h * keys + k) * width;
          let sum = 0;
          for (let c = 0; c < width; c++) sum += a[one + c] * b[other + c];
          out[at] = sum;
        }
      }
    }
    return out;
  },
  mask(trace, tensor, x) {
    const [, queries, keys] = tensor.shape;
    return Float64Array.from(x, (value, i) => {
      return isAllowed(tensor, Math.floor(i / keys) % queries, i % keys) ? value : -Infinity;
    });
  },
  softmax: (trace, tensor, x) => perRow(tensor.shape.at(-1), x, softmaxOf),
  log_softmax: (trace, tensor, x) =>
    perRow(tensor.shape.at(-1), x, (row) => {
      const all = logSumExp(row);
      return Float64Array.from(row, (value) => value - all);
    }),
  weighted_sum(trace, tensor, weights, values) {
    const [heads, queries, width] = tensor.shape;
    const keys = weights.length / (heads * queries);
    const out = new Float64Array(heads * queries * width);
    for (let h = 0; h < heads; h++) {
      for (let q = 0; q < queries; q++) {
        for (let k = 0; k < keys; k++) {
          const share = weights[(h * queries + q) * keys + k];
          const to = (h * queries + q) * width;
          const from = (h * keys + k) * width;
          for (let c = 0; c < width; c++) out[to + c] += share * values[from + c];
        }
      }
    }
    return out;
  },
  concat(trace, tensor, context) {
    const [rows, channels] = tensor.shape;
    const [heads, , width] = trace.tensors.get(tensor.in[0]).shape;
    const out = new Float64Array(rows * channels);
    for (let h = 0; h < heads; h++) {
      for (let r = 0; r < rows; r++) {
        for (let c = 0; c < width; c++) out[r * channels + h * width + c] = context[(h * rows + r) * width + c];
      }
    }
    return out;
  },
  mean: (trace, tensor, x) => eachRow(x, tensor.shape[0], (row) => total(row) / row.length),
  variance(trace, tensor, x, mean) {
    const spread = (row, r) => total(row, (value) => (value - mean[r]) ** 2) / row.length;
    return eachRow(x, tensor.shape[0], spread);
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

// How one number came about: {name, index, address, value, operands, terms, equation, note}.
//
// `equation` is a list of texts and numbers {value, address} that reads as arithmetic up to its result;
// `terms` are the summands of a long sum, each with its factors; `note` names a sentence of the dictionary.
export function explainCell(trace, name, index) {
  const tensor = trace.tensors.get(name);
  const value = trace.value(name, index);
  const operand = (input) => (at) => ({ value: trace.value(input, at), address: trace.address(input, at) });
  const inputs = tensor.in.map(operand);
  const told = CELL[tensor.op](trace, tensor, index, inputs);
  const operands = told.operands ?? [];
  return { tensor, name, index, address: trace.address(name, index), value, terms: null, ...told, operands };
}

function computed(value, address = '') {
  return { value, address };
}

// Summands by size; the equation shows the largest and one number for all the rest.
function summed(terms, extra = []) {
  const sorted = [...terms].sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  return { terms: sorted, extra };
}

function root(factor) {
  const square = factor > 1 ? factor ** 2 : factor ** -2;
  const isWhole = Math.abs(square - Math.round(square)) < 1e-6 * square;
  return isWhole && square > 1.4 ? [factor > 1 ? '×' : '/', Math.round(square)] : null;
}

function pointwise(symbols) {
  return (trace, tensor, index, [x]) => {
    const operand = x(index);
    return { equation: symbols(operand), operands: [operand] };
  };
}

function linearCell(trace, tensor, index, [x]) {
  const isHeads = tensor.op === 'heads';
  const width = tensor.shape.at(-1);
  const column = isHeads ? index[0] * width + index[2] : index.at(-1);
  const row = isHeads ? index[1] : index[0];
  const input = trace.tensors.get(tensor.in[0]);
  const inputs = range(input.shape[1]).map((c) => x([row, c]));
  const weights = trace.column(tensor.name, column);
  const wants = { name: tensor.name, column };
  if (!weights) return { equation: null, note: 'noteNoWeights', wants, row, operands: inputs };
  const terms = inputs.map((operand, c) => ({
    label: `${c}`,
    value: operand.value * weights.weights[c],
    factors: [operand, computed(weights.weights[c], `W(${tensor.name})[${column},${c}]`)],
  }));
  const bias = weights.bias ? [computed(weights.bias, `b(${tensor.name})[${column}]`)] : [];
  return { ...summed(terms, bias), operands: inputs, summands: 'channels' };
}

const CELL = {
  given: () => ({}),
  gather: (trace, tensor, index, [ids]) => ({ operands: [ids([index[0]])] }),
  rows: () => ({}),
  sinusoid(trace, tensor, [at, channel]) {
    const { width, layout, start = 0 } = { width: tensor.shape[1], ...tensor.constants };
    const { pair, isSine } = sinusoidParts({ width, layout }, channel);
    return { equation: [isSine ? 'sin(' : 'cos(', `${start + at} / 10000^(${2 * pair} / ${width})`, ')'] };
  },
  scale(trace, tensor, index, [x]) {
    const operand = x(index);
    const { factor } = tensor.constants;
    const exact = root(factor);
    const times = exact ? [` ${exact[0]} √${exact[1]}`] : [' × ', computed(factor, `factor(${tensor.name})`)];
    return { equation: [operand, ...times], operands: [operand] };
  },
  add(trace, tensor, index, [a, b]) {
    const operands = [a(index), b(index)];
    return { equation: [operands[0], ' + ', operands[1]], operands };
  },
  rotate(trace, tensor, index, [x]) {
    const [channel, before] = [index.at(-1), index.slice(0, -1)];
    const isFirst = channel % 2 === 0;
    const own = x(index);
    const other = x([...before, isFirst ? channel + 1 : channel - 1]);
    const { written } = turnOf(tensor, place(tensor.shape, index));
    const [plus, cos, sin] = [isFirst ? ' − ' : ' + ', ` × cos(${written})`, ` × sin(${written})`];
    const equation = isFirst ? [own, cos, plus, other, sin] : [other, sin, plus, own, cos];
    return { equation, operands: [own, other] };
  },
  linear: linearCell,
  heads: linearCell,
  matmul_t(trace, tensor, [head, query, key], [a, b]) {
    const width = trace.tensors.get(tensor.in[0]).shape[2];
    const terms = range(width).map((c) => {
      const factors = [a([head, query, c]), b([head, key, c])];
      return { label: `${c}`, value: factors[0].value * factors[1].value, factors };
    });
    return { ...summed(terms), operands: terms.flatMap((term) => term.factors), summands: 'channels' };
  },
  mask(trace, tensor, index, [x]) {
    const operand = x(index);
    const open = isAllowed(tensor, index[1], index[2]);
    return { equation: open ? [operand] : null, note: open ? null : 'noteMasked', operands: [operand] };
  },
  softmax(trace, tensor, index, [x]) {
    const row = trace.row(tensor.in[0], index.slice(0, -1));
    const top = maximum(row);
    const all = total(row, (value) => Math.exp(value - top));
    const operand = x(index);
    const rowAddress = trace.address(tensor.in[0], index.slice(0, -1));
    const best = computed(top, `max(${rowAddress})`);
    const below = computed(all, `sum(exp(${rowAddress}-max))`);
    return { equation: ['exp(', operand, ' − ', best, ') / ', below], operands: [operand], note: 'noteSoftmax' };
  },
  log_softmax(trace, tensor, index, [x]) {
    const row = trace.row(tensor.in[0], index.slice(0, -1));
    const operand = x(index);
    const all = computed(logSumExp(row), `logsumexp(${trace.address(tensor.in[0], index.slice(0, -1))})`);
    return { equation: [operand, ' − ', all], operands: [operand] };
  },
  weighted_sum(trace, tensor, [head, query, channel], [weights, values]) {
    const keys = trace.tensors.get(tensor.in[0]).shape[2];
    const terms = range(keys).map((key) => {
      const factors = [weights([head, query, key]), values([head, key, channel])];
      return { label: `${key}`, value: factors[0].value * factors[1].value, factors };
    });
    const axis = trace.tensors.get(tensor.in[0]).axes[2];
    const summands = axis.startsWith('src') ? 'src' : 'tgt';
    return { ...summed(terms), operands: terms.flatMap((term) => term.factors), summands };
  },
  concat(trace, tensor, [row, channel], [context]) {
    const width = trace.tensors.get(tensor.in[0]).shape[2];
    const operand = context([Math.floor(channel / width), row, channel % width]);
    return { equation: [operand], operands: [operand] };
  },
  mean(trace, tensor, [row], [x]) {
    const width = trace.tensors.get(tensor.in[0]).shape[1];
    const operands = range(width).map((c) => x([row, c]));
    const all = computed(total(operands, (one) => one.value), `sum(${trace.address(tensor.in[0], [row])})`);
    return { equation: [all, ` / ${width}`], operands };
  },
  variance(trace, tensor, [row], [x, mean]) {
    const width = trace.tensors.get(tensor.in[0]).shape[1];
    const middle = mean([row, 0]);
    const operands = range(width).map((c) => x([row, c]));
    const all = total(operands, (one) => (one.value - middle.value) ** 2);
    const squares = computed(all, `sum((${trace.address(tensor.in[0], [row])}-${middle.address})^2)`);
    return { equation: [squares, ` / ${width}`], operands: [middle, ...operands] };
  },
  normalise(trace, tensor, [row, channel], [x, mean, variance]) {
    const operands = [x([row, channel]), mean([row, 0]), variance([row, 0])];
    const eps = tensor.constants.eps.toString();
    return { equation: ['(', operands[0], ' − ', operands[1], ') / √(', operands[2], ` + ${eps})`], operands };
  },
  affine(trace, tensor, [row, channel], [x]) {
    const operand = x([row, channel]);
    const gamma = computed(trace.constants(tensor, 'gamma')[channel], `gamma(${tensor.name})[${channel}]`);
    const beta = computed(trace.constants(tensor, 'beta')[channel], `beta(${tensor.name})[${channel}]`);
    return { equation: [operand, ' × ', gamma, ' + ', beta], operands: [operand] };
  },
  relu: pointwise((x) => ['max(0, ', x, ')']),
  gelu: pointwise((x) => [x, ' × Φ(', x, ')']),
  silu: pointwise((x) => [x, ' / (1 + exp(0 − ', x, '))']),
};
