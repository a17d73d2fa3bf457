// What each station shows. A station is a function from a view (the trace and where we are in it) to elements.

import { digits, percent, whole } from './numbers.js';
import { average, cosine, entropyOf, logSumExp, maximum, norm, range, softmaxOf, total } from './trace.js';
import { arcs, bars, draw, figure, link, make, number, table } from './parts.js';
import { matrix } from './matrix.js';
import { say, STATIONS } from './words.js';

const GLYPH = { kept: '●', pruned: '×', finished: '■', winner: '★' };
const ATTENTION = ['q', 'k', 'v', 'rotated_q', 'rotated_k', 'scores', 'scaled', 'masked', 'weights', 'context',
  'concat', 'output'
];

export function label(token) {
  return token.piece.replace(/^▁(?=.)/, '');
}

// What a station needs: the trace, the state and short ways to both.
export class View {
  constructor(trace, state, on) {
    Object.assign(this, { trace, state, on });
    this.document = trace.document;
    this.source = this.document.tokens.src.map(label);
    this.target = this.document.tokens.tgt.slice(0, trace.nSteps).map(label);
    this.step = this.document.steps[state.t];
    this.shown = new Set(); // tensors that have a picture
    this.summary = '';
    this.main = null; // the number that is explained when none is chosen
  }

  at(side) {
    const layers = this.trace.config[side === 'enc' ? 'n_encoder_layers' : 'n_decoder_layers'];
    return `${side}.${Math.min(this.state.layer, layers - 1)}`;
  }

  // Rows and words of the source or the target, whichever the axis is of.
  now(axis) {
    return isSource(axis) ? this.state.i : this.state.t;
  }

  words(axis) {
    return isSource(axis) ? this.source : this.target;
  }

  names(axis, size) {
    return /^(src|tgt)/.test(axis) ? this.words(axis) : range(size).map(String);
  }

  lang(axis) {
    const { src_lang: source, tgt_lang: target } = this.document.model;
    return (isSource(axis) ? source : /^(tgt|dec)/.test(axis) && target) || null;
  }

  // A piece of a sentence, in its language.
  text(side, text, tag = 'span') {
    return make(tag, { lang: this.lang(side), dir: 'auto' }, text);
  }

  number(name, index, text) {
    return link(this.trace.value(name, index), this.trace.address(name, index), text);
  }

  matrix(spec, isSmall = false) {
    return matrix(spec, { depth: this.state.depth, pin: this.state.pin, on: this.on, small: isSmall });
  }

  // One tensor, or one head of it, as a matrix.
  tensor(name, { head = this.state.head, title = name, isSmall = false, ...more } = {}) {
    const tensor = this.trace.tensors.get(name);
    if (!tensor) return absent();
    this.shown.add(name);
    const first = tensor.axes[0] === 'head' ? 1 : 0;
    const [axes, [nRows, nColumns]] = [tensor.axes.slice(first), tensor.shape.slice(first)];
    const start = first * head * nRows * nColumns;
    const data = this.trace.data(name).subarray(start, start + nRows * nColumns);
    const isShare = tensor.op === 'softmax';
    const spec = {
      title,
      tensor: this.trace.address(name, first ? [head] : []),
      rows: this.names(axes[0], nRows),
      columns: this.names(axes[1], nColumns),
      rowLang: this.lang(axes[0]),
      columnLang: this.lang(axes[1]),
      value: (r, c) => data[r * nColumns + c],
      address: (r, c) => this.trace.address(name, first ? [head, r, c] : [r, c]),
      now: this.now(axes[0]),
      upTo: axes[0].startsWith('tgt') ? this.state.t : undefined,
      isShare,
      most: isShare ? 1 : undefined,
    };
    return this.matrix({ ...spec, ...more }, isSmall);
  }

  // The same row of several tensors {label: name}, or of one head of each, one below the other.
  strip(title, parts, row, more = {}) {
    const known = Object.entries(parts).filter(([, name]) => this.trace.has(name));
    known.forEach(([, name]) => this.shown.add(name));
    const hasHeads = this.trace.tensors.get(known[0][1]).axes[0] === 'head';
    const at = hasHeads ? [this.state.head, row] : [row];
    const data = known.map(([, name]) => this.trace.row(name, at));
    return this.matrix({
      title,
      rows: known.map(([text]) => text),
      columns: range(data[0].length).map(String),
      isStrip: true,
      value: (r, c) => data[r][c],
      address: (r, c) => this.trace.address(known[r][1], [...at, c]),
      ...more,
    });
  }

  beside(...pictures) {
    return make('div.side-by-side', { style: { '--n': this.source.length } }, pictures);
  }
}

function isSource(axis) {
  return /^(src|enc)/.test(axis);
}

function absent() {
  return make('p.absent', say('leftOut'));
}

function best(row) {
  return row.reduce((at, x, n) => (x > row[at] ? n : at), 0);
}

function quoted(text) {
  return `“${text}”`;
}

// Attention in a sentence; the strongest number of the row is the one to explain.
function attention(view, side, part, name) {
  const { trace, state: { head } } = view;
  const prefix = `${view.at(side)}.${part}`;
  const [, queries, keys] = trace.tensors.get(`${prefix}.weights`).axes;
  const row = view.now(queries);
  const shares = trace.row(`${prefix}.weights`, [head, row]);
  const at = best(shares);
  view.main = trace.address(`${prefix}.${name}`, [head, row, name === 'context' ? 0 : at]);
  const word = part === 'cross' ? label(view.document.tokens.tgt[row + 1]) : view.words(side)[row];
  view.summary = say(part === 'cross' ? 'writes' : 'looks', word, percent(shares[at]), view.words(keys)[at]);
  return { prefix, row, shares, at, keys };
}

function tabs(view, prefix, names) {
  const { trace, state } = view;
  const current = state.pin && trace.parse(state.pin).name;
  const tab = (name) => {
    const full = `${prefix}.${name}`;
    const { axes } = trace.tensors.get(full);
    const index = axes[0] === 'head' ? [state.head, view.now(axes[1]), 0] : [view.now(axes[0]), 0];
    const href = `#${trace.address(full, index)}&depth=${state.depth}`;
    return make('a', { href, 'aria-current': current === full && 'true' }, name);
  };
  return make('nav.tabs', { 'aria-label': prefix }, names.filter((name) => trace.has(`${prefix}.${name}`)).map(tab));
}

function facts(contents) {
  const fact = ([name, content]) => make('div', make('dt', name), make('dd', content));
  return make('dl.facts', Object.entries(contents).map(fact));
}

// Pieces with something below each; `state` gives the class of the nth.
function chips(view, side, tokens, below, state) {
  const chip = (token, n) => make('li', { className: state(n) }, view.text(side, token, 'b'), below(n));
  return make('ol.chips', tokens.map(chip));
}

function upTo(now) {
  return (n) => (n < now ? '' : n === now ? 'chosen' : 'later');
}

function pieces(view, side, list, mark = -1) {
  const piece = (text, n) => {
    return make('span.piece', { className: n === mark ? 'new' : '', lang: view.lang(side), dir: 'auto' }, text);
  };
  return make('span.pieces', list.map(piece));
}

function count(value, name) {
  return number(value, name, value.toLocaleString('en').replace(/,/g, ' '));
}

function hint(text) {
  return make('p.hint', text);
}

// One drawing for each station of stations.json, by slug.
export const DRAW = {
  overview(view) {
    const { trace: { config, floats }, document: { model, run } } = view;
    const swatch = (kind, text, key) => {
      return make('li', make('span.swatch', { className: kind, 'aria-hidden': 'true' }, text), say(key));
    };
    const layers = ['n_encoder_layers', 'n_decoder_layers'].map((key) => count(config[key], key));
    return [
      make('p.pair', view.text('src', run.src), make('span.arrow', { 'aria-hidden': 'true' }, '→'),
        view.text('tgt', run.tgt)),
      facts({
        [say('parameters')]: count(model.n_parameters, 'n_parameters'),
        [say('layersEach')]: [layers[0], ' + ', layers[1]],
        [say('headsEach')]: count(config.n_heads, 'n_heads'),
        [say('channelsEach')]: count(config.d_model, 'd_model'),
        [say('vocabulary')]: count(config.tgt_vocab, 'tgt_vocab'),
        [say('floats')]: count(floats.length, 'n_floats'),
      }),
      make('a.button', { href: `#${STATIONS[1].slug}` }, say('startTour')),
      make('section.legend', make('h3', say('legend')), make('ul',
        swatch('both', '− +', 'legendSign'),
        swatch('share', '', 'legendShare'),
        swatch('masked', '', 'legendMasked'),
        swatch('', '#', 'legendAddress'))),
    ];
  },

  pieces(view) {
    const { tokens, pieces: cut } = view.document;
    view.main = `enc.ids[${view.state.i}]`;
    view.summary = `${tokens.src.length} × ${say('piece')}`;
    const id = (n) => link(tokens.src[n].id, `enc.ids[${n}]`, `${tokens.src[n].id}`);
    const names = tokens.src.map((token) => token.piece);
    const isChosen = (n) => (n === view.state.i ? 'chosen' : '');
    const all = figure(`${say('piece')} → id`, chips(view, 'src', names, id, isChosen));
    return [all, cut.kind === 'bpe' ? merges(view, cut.src) : paths(view, cut.src)];
  },

  embedding(view) {
    const { i } = view.state;
    view.main = `enc.embedding[${i},0]`;
    view.summary = `${quoted(view.source[i])} → E[${view.document.tokens.src[i].id}]`;
    const strip = view.strip(quoted(view.source[i]), { 'E[id]': 'enc.row', '× √d': 'enc.embedding' }, i);
    return [strip, view.tensor('enc.embedding', { title: 'e' })];
  },

  positions(view) {
    const { i } = view.state;
    view.summary = `${say('position')} ${i}: ${quoted(view.source[i])}`;
    if (view.trace.has('enc.0.self.rotated_q')) return rotation(view, `${view.at('enc')}.self`, i);
    if (!view.trace.has('enc.position')) return [absent()];
    view.main = `enc.position[${i},0]`;
    return [view.tensor('enc.position', { title: 'PE', most: 1 }), placed(view, 'enc', i)];
  },

  'query-key-value'(view) {
    const { prefix } = attention(view, 'enc', 'self', 'q');
    view.main = view.trace.address(`${prefix}.q`, [view.state.head, view.state.i, 0]);
    view.summary = `${quoted(view.source[view.state.i])}: q, k, v`;
    const picture = (name) => view.tensor(`${prefix}.${name[0]}`, { title: say(name), isStrip: true });
    return ['query', 'key', 'value'].map(picture);
  },

  scores(view) {
    const { prefix, row, at } = attention(view, 'enc', 'self', 'scores');
    const bars = view.state.depth < 3 && products(view, prefix, row, at);
    return [view.tensor(`${prefix}.scores`, { title: 'q · k' }), bars];
  },

  scale(view) {
    const { prefix } = attention(view, 'enc', 'self', 'scaled');
    const spread = (name, r) => {
      const [full, index] = [`${prefix}.${name}`, [view.state.head, r]];
      const value = entropyOf(softmaxOf(view.trace.row(full, index)));
      return number(value, `entropy(softmax(${view.trace.address(full, index)}))`, value.toFixed(2));
    };
    const most = Math.max(...view.trace.tensors.get(`${prefix}.scores`).stats.slice(0, 2).map(Math.abs));
    const rows = view.source.map((word, r) => ({
      className: r === view.state.i && 'now',
      cells: [view.text('src', word), spread('scores', r), spread('scaled', r)],
    }));
    const header = [say('word'), `${say('before')}, ${say('bits')}`, `${say('after')}, ${say('bits')}`];
    return [
      view.beside(view.tensor(`${prefix}.scores`, { title: say('before'), most }),
        view.tensor(`${prefix}.scaled`, { title: say('after'), most })),
      figure(say('entropyBoth'), table(header, rows)),
    ];
  },

  'padding-mask'(view) {
    const { prefix } = attention(view, 'enc', 'self', 'masked');
    const { allowed } = view.trace.tensors.get(`${prefix}.masked`).constants;
    const isOpen = allowed.every((row) => !row.includes('0'));
    return [view.tensor(`${prefix}.masked`, { title: 'm' }), isOpen && hint(say('padNone'))];
  },

  softmax(view) {
    const found = attention(view, 'enc', 'self', 'weights');
    return [view.tensor(`${found.prefix}.weights`, { title: 'a' }), softmaxRow(view, found)];
  },

  'weighted-values': (view) => mixture(view, attention(view, 'enc', 'self', 'context')),
  'all-heads': (view) => [headWall(view, attention(view, 'enc', 'self', 'weights').prefix)],
  'join-heads': (view) => joined(view, attention(view, 'enc', 'self', 'output')),
  'encoder-add-norm-1': (view) => addNorm(view, 'enc', 1),
  'feed-forward': (view) => feedForward(view, 'enc'),
  'encoder-add-norm-2': (view) => addNorm(view, 'enc', 2),

  memory(view) {
    const { trace, state: { i } } = view;
    const names = stack(trace);
    const along = (name) => view.source.map((_, r) => cosine(trace.row(names[0], [r]), trace.row(name, [r])));
    const values = names.map(along);
    const nameOf = (n) => (n === 0 ? 'x' : n === names.length - 1 ? say('memory') : `${say('layer')} ${n}`);
    const layers = Object.fromEntries(names.map((name, n) => [nameOf(n), name]));
    view.main = `${names.at(-1)}[${i},0]`;
    view.summary = `${quoted(view.source[i])}: ${values.map((row) => row[i].toFixed(2)).join(' → ')}`;
    return [
      view.matrix({
        title: say('drift'),
        rows: Object.keys(layers),
        columns: view.source,
        columnLang: view.lang('src'),
        most: 1,
        tall: 30,
        value: (r, c) => values[r][c],
        address: (r, c) => `cosine(${names[0]}[${c}],${names[r]}[${c}])`,
      }),
      view.strip(`${quoted(view.source[i])} ${say('stack')}`, layers, i),
      view.tensor(names.at(-1), { title: say('memory') }),
    ];
  },

  'shifted-right'(view) {
    const { t } = view.state;
    const name = view.trace.has('dec.sum') ? 'dec.sum' : 'dec.embedding';
    view.main = `${name}[${t},0]`;
    view.summary = `${view.target.slice(0, t + 1).join(' ')} → ?`;
    const id = (n) => view.number('dec.ids', [n], `${view.document.tokens.tgt[n].id}`);
    return [chips(view, 'tgt', view.target, id, upTo(t)), placed(view, 'dec', t), view.tensor(name, { title: 'x' })];
  },

  'masked-self-attention'(view) {
    const { prefix, row, shares } = attention(view, 'dec', 'self', 'weights');
    const open = softmaxOf(view.trace.row(`${prefix}.scaled`, [view.state.head, row]));
    const scaled = view.trace.address(`${prefix}.scaled`, [view.state.head, row]);
    const ghost = view.target.map((word, n) => ({
      label: word,
      lang: view.lang('tgt'),
      value: open[n],
      address: `softmax(${scaled})[${n}]`,
      className: n > row && 'later',
      note: n > row ? '−∞' : percent(shares[n]),
    }));
    const since = (n) => make('small', n < row ? say('cached') : n === row ? say('newNow') : '·');
    return [
      tabs(view, prefix, ATTENTION),
      view.beside(view.tensor(`${prefix}.weights`, { title: 'a' }),
        view.tensor(`${prefix}.masked`, { title: 'm' })),
      figure(say('ghost'), bars(ghost, { full: 1, className: 'ghost', write: percent })),
      figure('k, v', chips(view, 'tgt', view.target, since, upTo(row))),
    ];
  },

  'decoder-add-norm-1': (view) => addNorm(view, 'dec', 1),

  'cross-attention'(view) {
    const found = attention(view, 'dec', 'cross', 'weights');
    const { trace, state: { head, t } } = view;
    const name = `${found.prefix}.weights`;
    const linksOf = (from) => Array.from(trace.row(name, [head, from]), (share, to) => {
      return { from, to, share, isNow: from === t, address: trace.address(name, [head, from, to]) };
    });
    const links = range(t + 1).flatMap(linksOf).filter(({ share }) => share > 0.04);
    return [
      make('p.hint.flows', make('span.from-target', `q ← ${say('decoder')}`),
        make('span.from-source', `k, v ← ${say('memory')}`)),
      tabs(view, found.prefix, ATTENTION),
      view.tensor(name, { title: 'a' }),
      aligned(view, links),
      softmaxRow(view, found),
      headWall(view, found.prefix),
    ];
  },

  'decoder-add-norm-2': (view) => addNorm(view, 'dec', 2),

  'decoder-feed-forward'(view) {
    const after = addNorm(view, 'dec', 3);
    const network = feedForward(view, 'dec'); // last, to explain a number of its own
    return view.main ? [...network, ...after] : network;
  },

  linear(view) {
    const { step, document: { vocabulary }, state: { t } } = view;
    const row = view.trace.row('out.logits', [t]);
    view.main = `out.logits[${t},${step.chosen}]`;
    view.summary = `${quoted(vocabulary[step.chosen])}: ${digits(row[step.chosen])}`;
    const line = (id) => ({
      label: vocabulary[id],
      lang: view.lang('tgt'),
      value: row[id],
      address: `out.logits[${t},${id}]`,
      className: id === step.chosen && 'chosen',
      note: String(id),
    });
    const found = make('div', { 'aria-live': 'polite' });
    const look = () => {
      view.state.find = field.value;
      const ids = matching(vocabulary, field.value).sort((a, b) => row[b] - row[a]);
      const shown = [hint(say('found', ids.length)), bars(ids.slice(0, 12).map(line))];
      found.replaceChildren(...(field.value ? shown : []));
    };
    const value = view.state.find;
    const field = make('input', { type: 'search', id: 'find-word', autocomplete: 'off', value, oninput: look });
    look();
    return [
      figure(say('logits'), bars(step.top.map((word) => line(word.id)))),
      figure(null, make('label', { for: 'find-word' }, say('search')), field, found),
    ];
  },

  'vocabulary-softmax'(view) {
    const { state, step } = view;
    const picture = make('div.chances');
    const redraw = () => picture.replaceChildren(...chances(view));
    const slider = (id, text, min, max, by, key) => {
      const shown = make('output', { for: id }, String(state[key]));
      const moved = (event) => {
        state[key] = Number(event.target.value);
        shown.textContent = event.target.value;
        redraw();
      };
      const field = make('input', { id, type: 'range', min, max, step: by, value: state[key], oninput: moved });
      return make('div.slider', make('label', { for: id }, text), field, shown);
    };
    redraw();
    view.main = `out.probabilities[${state.t},${step.chosen}]`;
    view.summary = null; // `chances` has said it
    const sliders = make('div.sliders', slider('temperature', say('temperature'), 0.1, 3, 0.05, 'temperature'),
      slider('top-k', say('topK'), 0, 40, 1, 'topK'));
    return [sliders, picture];
  },

  choose(view) {
    const { beam, run: { decode } } = view.document;
    const { step, state: { t } } = view;
    const nodes = beam.filter((node) => node.t === t).sort((a, b) => a.rank - b.rank);
    const line = nodes.find((node) => node.state === 'pruned');
    view.main = `out.log_probs[${t},${step.chosen}]`;
    view.summary = `${quoted(label(beam[step.node]))}: ${digits(beam[step.node].total)}`;
    const rows = nodes.map((node) => {
      const before = pathOf(beam, beam[node.parent]).slice(-3).map(label).join(' ');
      const prefix = { lang: view.lang('tgt'), dir: 'auto' };
      const parts = [part(beam[node.parent], 'total'), ' + (', part(node, 'logp'), ') = '];
      return {
        className: `${node.state} ${node === line ? 'line' : ''} ${node.n === step.node ? 'now' : ''}`,
        cells: [
          make('span.prefix', prefix, make('span.old', before), ' ', make('b', label(node))),
          make('span.equation', parts, part(node, 'total', 'result')),
          stateOf(node),
        ],
      };
    });
    const ended = nodes.filter((node) => node.state === 'finished' || node.state === 'winner');
    const rank = (node) => make('li', view.text('tgt', label(node), 'b'), ' ', penaltyLine(node, decode));
    return [
      figure(`${say('step')} ${t}: ${nodes.length} ↦ ${decode.width}`,
        table([say('word'), say('total'), say('state')], rows, 'candidates')),
      ended.length > 0 && figure(say('ranked'), make('ul', ended.map(rank))),
    ];
  },

  append(view) {
    const { document: { steps, tokens, run }, state: { t } } = view;
    const isLast = t === steps.length - 1;
    view.main = `out.log_probs[${t},${view.step.chosen}]`;
    view.summary = tokens.tgt.slice(1, t + 2).map(label).join(' ');
    const rows = steps.map((step, n) => {
      const choose = { type: 'button', lang: view.lang('tgt'), onclick: () => view.on.step(n) };
      return {
        className: n === t ? 'now' : n > t ? 'later' : '',
        cells: [
          String(n),
          view.text('tgt', tokens.tgt.slice(Math.max(0, n - 2), n + 1).map(label).join(' ')),
          make('button.word', choose, label(tokens.tgt[n + 1])),
          number(Math.exp(step.logp), `exp(steps[${n}].logp)`, percent(Math.exp(step.logp))),
          number(step.logp, `steps[${n}].logp`),
        ],
      };
    });
    return [
      isLast && hint(say(run.ended ? 'ended' : 'notEnded')),
      table([say('step'), say('input'), say('chosen'), 'p', 'log p'], rows),
    ];
  },

  'beam-tree'(view) {
    const { beam, run } = view.document;
    const chosen = beam[view.state.node ?? view.step.node];
    const path = pathOf(beam, chosen);
    const text = path.map(label).join(' ');
    const [total, score] = [digits(chosen.total), digits(chosen.score)];
    view.summary = `${quoted(text)}: ${say('total')} ${total}, ${say('score')} ${score}`;
    const sum = path.flatMap((node, n) => [n ? ' + (' : '(', part(node, 'logp'), ')']);
    const isOther = chosen.n > 0 && chosen.n !== run.node && chosen.state !== 'pruned';
    const look = { type: 'button', onclick: () => view.on.traceNode(chosen.n) };
    return [
      tree(view, chosen),
      make('div.node-card',
        make('p', view.text('tgt', text, 'b'), ' ', stateOf(chosen)),
        path.length > 0 && make('p.equation', sum, ' = ', part(chosen, 'total', 'result')),
        penaltyLine(chosen, run.decode),
        isOther && make('p', make('button', look, say('traceThis')))),
    ];
  },

  'back-to-text'(view) {
    const { run, tokens } = view.document;
    const words = tokens.tgt.slice(1, view.trace.nSteps + 1);
    const links = alignment(view.trace).map((shares, from) => {
      const to = best(shares);
      return { from, to, share: maximum(shares), isNow: true, address: `alignment[${from},${to}]` };
    });
    view.summary = `${run.src} → ${run.tgt}`;
    return [
      figure(say('detokenise'), pieces(view, 'tgt', words.map((token) => token.piece))),
      make('p.translation', { lang: view.lang('tgt'), dir: 'auto' }, run.tgt),
      run.reference && facts({
        [say('reference')]: view.text('tgt', run.reference)
      }),
      facts({
        [say('total')]: number(run.log_prob, 'run.log_prob'),
        [say('score')]: number(run.score, 'run.score'),
        [say('length')]: count(words.length, 'length'),
      }),
      aligned(view, links),
    ];
  },
};

export function drawStation(view) {
  const content = DRAW[STATIONS[view.state.station].slug](view);
  const pin = view.state.pin && view.trace.parse(view.state.pin);
  // A number that lies in none of the pictures brings its own.
  if (pin && !view.shown.has(pin.name) && !pin.tensor.axes.includes('vocab') && pin.tensor.shape.length > 1) {
    const head = pin.tensor.axes[0] === 'head' ? pin.index[0] : 0;
    content.unshift(view.tensor(pin.name, { title: say('pinned'), head }));
  }
  return content;
}

// The ids of all words that contain what is looked for.
export function matching(vocabulary, wanted) {
  const small = wanted.trim().toLowerCase();
  return small ? range(vocabulary.length).filter((id) => vocabulary[id].toLowerCase().includes(small)) : [];
}

// How BPE merged the letters of each word.
function merges(view, words) {
  const state = (word, { pieces: list, merged, rank }) => {
    const step = () => make('small', `${say('mergeStep')} `, number(rank, `merge(${word.text})`, whole(rank)));
    return make('li', pieces(view, 'src', list, merged ?? -1), rank !== null && step());
  };
  const shown = words.map((word) => make('details', { open: words.length < 8 },
    make('summary', pieces(view, 'src', word.states.at(-1).pieces)),
    make('ol', word.states.map((one) => state(word, one)))));
  return figure(say('merges'), make('div.words', shown));
}

// The best and the second best way to cut each word, by a unigram model.
function paths(view, words) {
  const score = ({ piece, score }) => score !== null && make('small', number(score, `score(${piece})`));
  const piece = (one) => make('span.piece', { lang: view.lang('src'), dir: 'auto' }, one.piece, score(one));
  const path = (list) => make('span.pieces', list?.map(piece) ?? '–');
  const total = (value, word, key) => typeof value === 'number' && number(value, `${key}(${word.text})`);
  const rows = words.map((word) => ({
    cells: [
      view.text('src', word.text),
      path(word.best),
      total(word.score, word, 'score'),
      path(word.second),
      total(word.second_score, word, 'second'),
    ],
  }));
  return table([say('word'), say('bestPath'), 'log p', say('runnerUp'), 'log p'], rows);
}

// Queries and keys before and after their rotation, for one token and for all.
function rotation(view, prefix, row) {
  view.main = view.trace.address(`${prefix}.rotated_q`, [view.state.head, row, 0]);
  const parts = {
    q: `${prefix}.q`,
    'q, rotated': `${prefix}.rotated_q`,
    k: `${prefix}.k`,
    'k, rotated': `${prefix}.rotated_k`,
  };
  return [
    view.strip(`${say('rotation')} — ${quoted(view.source[row])}`, parts, row),
    view.tensor(`${prefix}.rotated_q`, { title: say('query'), isStrip: true }),
    view.tensor(`${prefix}.rotated_k`, { title: say('key'), isStrip: true }),
  ];
}

function placed(view, side, row) {
  const parts = { e: `${side}.embedding`, '+ PE': `${side}.position`, '= x': `${side}.sum` };
  return view.strip(`${say('positionStrip')} — ${quoted(view.words(side)[row])}`, parts, row);
}

function aligned(view, links) {
  const { src, tgt } = view.document.tokens;
  const target = tgt.slice(1, view.trace.nSteps + 1).map(label);
  const languages = [view.lang('src'), view.lang('tgt')];
  return figure(say('alignment'), arcs(src.map(label), target, links, languages, view.on.step));
}

// The products of a score, from the two tensors that it was made of.
function products(view, prefix, row, at) {
  const { trace, state: { head, pin } } = view;
  const found = pin && trace.parse(pin);
  const [query, key] = found?.name === `${prefix}.scores` ? found.index.slice(1) : [row, at];
  const [asks, offers] = trace.tensors.get(`${prefix}.scores`).in;
  const k = trace.row(offers, [head, key]);
  const rows = Array.from(trace.row(asks, [head, query]), (x, c) => ({
    label: `${say('channel')} ${c}`,
    value: x * k[c],
    address: `${trace.address(asks, [head, query, c])}*${trace.address(offers, [head, key, c])}`,
  }));
  const pair = `${quoted(view.source[query])} · ${quoted(view.source[key])}`;
  return figure(`${say('scoresBars')}: ${pair}`, bars(rows, { className: 'dense' }));
}

function softmaxRow(view, { prefix, row, keys }) {
  const { trace, state: { head } } = view;
  const [before, after] = [`${prefix}.masked`, `${prefix}.weights`];
  const masked = trace.row(before, [head, row]);
  const [top, all] = [maximum(masked), trace.address(before, [head, row])];
  const raised = Array.from(masked, (x) => Math.exp(x - top));
  const sum = (list, address) => number(total(list), address);
  const sumOfShares = sum(trace.row(after, [head, row]), `sum(${trace.address(after, [head, row])})`);
  const rows = view.words(keys).map((name, n) => ({
    cells: [
      view.text(keys, name),
      view.number(before, [head, row, n]),
      number(masked[n] - top, `${all}[${n}]-max`),
      number(raised[n], `exp(${all}[${n}]-max)`),
      view.number(after, [head, row, n]),
    ],
  }));
  rows.push({ className: 'total', cells: ['Σ', '', '', sum(raised, `sum(exp(${all}-max))`), sumOfShares] });
  return figure(say('oneRow'), table([say('word'), 's', 's − max', 'exp', say('share')], rows));
}

function mixture(view, { prefix, row, shares, keys }) {
  const { trace, state: { head } } = view;
  const words = view.words(keys);
  const values = words.map((_, n) => trace.row(`${prefix}.v`, [head, n]));
  const context = trace.row(`${prefix}.context`, [head, row]);
  const where = (name, ...index) => trace.address(`${prefix}.${name}`, [head, ...index]);
  const isSum = (r) => r === words.length;
  const rows = words.map((word, n) => ({
    label: word,
    lang: view.lang(keys),
    value: shares[n],
    address: where('weights', row, n),
  }));
  view.shown.add(`${prefix}.context`);
  return [
    view.matrix({
      title: say('contributions'),
      rows: [...words, '= c'],
      columns: range(context.length).map(String),
      rowLang: view.lang(keys),
      isStrip: true,
      value: (r, c) => (isSum(r) ? context[c] : shares[r] * values[r][c]),
      address: (r, c) => (isSum(r) ? where('context', row, c) : `${where('weights', row, r)}*${where('v', r, c)}`),
    }),
    figure(say('share'), bars(rows, { full: 1, write: percent })),
    view.tensor(`${prefix}.context`, { title: 'c', isStrip: true }),
  ];
}

function headWall(view, prefix) {
  const { trace, state } = view;
  const name = `${prefix}.weights`;
  const { shape: [heads, nRows], axes } = trace.tensors.get(name);
  const one = (head) => {
    const rows = range(nRows).map((r) => trace.row(name, [head, r]));
    const spread = rows.reduce((sum, row) => sum + entropyOf(row) / nRows, 0);
    const r = best(rows.map(maximum));
    const c = best(rows[r]);
    const isChosen = head === state.head;
    const choose = { type: 'button', 'aria-pressed': String(isChosen), onclick: () => view.on.head(head) };
    const entropy = number(spread, `mean(entropy(${trace.address(name, [head])}))`, spread.toFixed(2));
    return make('div.head', { className: isChosen ? 'chosen' : '' },
      make('button', choose, `${say('head')} ${head}`),
      view.tensor(name, { head, isSmall: true, now: undefined }),
      make('small', `${say('entropy')} `, entropy, ` ${say('bits')}`),
      make('small', `${view.words(axes[1])[r]} → ${view.words(axes[2])[c]} `,
        view.number(name, [head, r, c], percent(rows[r][c]))));
  };
  return make('div.wall', range(heads).map(one));
}

function joined(view, { prefix, row }) {
  const { trace } = view;
  const { n_heads: heads, d_model: width } = trace.config;
  const output = trace.tensors.get(`${prefix}.output`);
  const { head_norms: norms } = output.constants;
  const stored = norms && (Array.isArray(norms) ? norms.flat() : trace.constants(output, 'head_norms'));
  const lengthOf = (h) => (stored ? stored[row * heads + h] : norm(trace.row(`${prefix}.context`, [h, row])));
  const lengths = range(heads).map(lengthOf);
  const sum = total(lengths);
  view.main = `${prefix}.output[${row},0]`;
  view.summary = `${say('head')} ${best(lengths)}: ${percent(maximum(lengths) / sum)}`;
  const rows = lengths.map((length, h) => ({
    label: `${say('head')} ${h}`,
    value: length,
    address: `norm(${trace.address(`${prefix}.context`, [h, row])}${stored ? '*W_O' : ''})`,
    note: percent(length / sum),
    className: h === view.state.head && 'chosen',
  }));
  const marks = range(heads - 1).map((h) => ((h + 1) * width) / heads);
  const parts = { concat: `${prefix}.concat`, '· W_O': `${prefix}.output` };
  return [
    view.strip(quoted(view.source[row]), parts, row, { marks }),
    figure(say(stored ? 'headShare' : 'headContext'), bars(rows), stored && hint(say('headShareNote'))),
    view.tensor(`${prefix}.output`, { title: 'y' }),
  ];
}

function addNorm(view, side, n) {
  const { trace } = view;
  const prefix = view.at(side);
  const sum = trace.tensors.get(`${prefix}.add${n}.sum`);
  if (!sum) return [absent()];
  const [row, words, name] = [view.now(side), view.words(side), `${prefix}.norm${n}`];
  const hasNorm = trace.has(`${name}.output`);
  const parts = [
    [say('input'), sum.in[0]],
    [`+ ${say('sublayer')}`, sum.in[1]],
    [`= ${say('sum')}`, sum.name],
    [say('normalised'), `${name}.normalised`],
    ['· γ + β', `${name}.output`],
  ];
  const order = trace.config.norm === 'pre' ? [0, 3, 4, 1, 2] : [0, 1, 2, 3, 4];
  const strip = view.strip(quoted(words[row]), Object.fromEntries(order.map((at) => parts[at])), row);
  view.main = `${hasNorm ? `${name}.output` : sum.name}[${row},0]`;
  if (!hasNorm) return [strip, view.tensor(sum.name, { title: say('sum') })];
  const spread = Math.sqrt(trace.value(`${name}.variance`, [row, 0]));
  const mean = digits(trace.value(`${name}.mean`, [row, 0]));
  const eps = trace.config.norm_eps;
  view.summary = `${quoted(words[row])}: μ = ${mean}, σ = ${digits(spread)}`;
  return [
    tabs(view, prefix, [`add${n}.sum`, ...['mean', 'variance', 'normalised', 'output'].map((one) =>
      `norm${n}.${one}`)]),
    strip,
    facts({
      μ: view.number(`${name}.mean`, [row, 0]),
      'σ²': view.number(`${name}.variance`, [row, 0]),
      σ: number(spread, `sqrt(${name}.variance[${row},0])`),
      ε: number(eps, 'norm_eps', String(eps)),
    }),
    figure(say('dots'), dots(view, side, [trace.tensors.get(`${name}.normalised`).in[0], `${name}.output`], row)),
  ];
}

// Mean (dot) and standard deviation (bar) of each token's channels, before and after.
function dots(view, side, names, now) {
  const words = view.words(side);
  const statsOf = (name, r) => {
    const row = view.trace.row(name, [r]);
    const mean = average(row);
    return [mean, Math.sqrt(average(row, (x) => (x - mean) ** 2))];
  };
  const stats = words.map((_, r) => names.map((name) => statsOf(name, r)));
  const most = Math.max(...stats.flat().map(([mean, spread]) => Math.abs(mean) + spread));
  const place = (value) => 50 + (49 * value) / most;
  const track = (r) => ([mean, spread], which) => {
    const bar = { left: `${place(mean - spread)}%`, right: `${100 - place(mean + spread)}%` };
    const address = `mean(${names[which]}[${r}])`;
    return make('span.track', { className: which ? 'after' : '' }, make('i', { style: bar }),
      make('b', { style: { left: `${place(mean)}%` }, 'data-value': mean, 'data-address': address }));
  };
  const line = (word, r) => make('li', { className: r === now ? 'now' : '' },
    make('span.label', { lang: view.lang(side), dir: 'auto' }, word), stats[r].map(track(r)));
  return make('ul.dots', words.map(line));
}

function feedForward(view, side) {
  const { trace } = view;
  const prefix = `${view.at(side)}.ff`;
  if (!trace.has(`${prefix}.hidden`)) return [absent()];
  const row = view.now(side);
  const word = quoted(view.words(side)[row]);
  const active = trace.row(`${prefix}.active`, [row]);
  const off = average(active, (x) => x <= 0);
  const sorted = Array.from(active.keys()).sort((a, b) => active[b] - active[a]);
  const strongest = sorted.filter((c, n) => active[c] > 0 || n === 0).slice(0, 10);
  const rows = strongest.map((c) => {
    return { label: `${say('hidden')} ${c}`, value: active[c], address: `${prefix}.active[${row},${c}]` };
  });
  const { activation } = trace.config;
  const wide = { 'x W₁ + b₁': `${prefix}.hidden`, [activation]: `${prefix}.active` };
  const killed = `${say('killed')} ${activation}`;
  view.main = rows[0].address;
  view.summary = `${word}: ${percent(off)} ${killed}`;
  return [
    tabs(view, prefix, ['hidden', 'active', 'output']),
    view.strip(`${word}: ${active.length} × ${say('hidden')}`, wide, row),
    facts({
      [killed]: number(off, `share(${prefix}.active[${row}]<=0)`, percent(off))
    }),
    figure(say('topNeurons'), bars(rows)),
    view.strip(`${word}: ${say('output')}`, { '· W₂ + b₂': `${prefix}.output` }, row),
  ];
}

// The tensors that go up the encoder: what the first layer reads, then what each layer gives.
function stack(trace) {
  const names = range(trace.config.n_encoder_layers).map((l) => trace.tensors.get(`enc.${l}.add1.sum`).in[0]);
  return [...names, trace.tensors.get('dec.0.cross.k').in[0]];
}

// The probabilities of a step, with the temperature and the top k that the sliders say.
function chances(view) {
  const { step, state: { t, temperature, topK }, document: { vocabulary } } = view;
  const row = view.trace.row('out.logits', [t]);
  const least = topK > 0 ? [...row].sort((a, b) => b - a)[Math.min(topK, row.length) - 1] : -Infinity;
  const changed = Float64Array.from(row, (x) => (x >= least ? x / temperature : -Infinity));
  const shares = softmaxOf(changed);
  const isPlain = temperature === 1 && topK === 0;
  const name = isPlain ? `out.probabilities[${t}` : `softmax(top(${topK},out.logits)/${temperature})[${t}`;
  const rest = Math.max(0, 1 - step.top.reduce((sum, word) => sum + shares[word.id], 0));
  const rows = step.top.map(({ id }) => ({
    label: vocabulary[id],
    lang: view.lang('tgt'),
    value: shares[id],
    address: `${name},${id}]`,
    className: id === step.chosen && 'chosen',
  }));
  rows.push({ label: say('tail'), value: rest, address: `sum(other(${name}]))` });
  view.on.summarise(say('certain', label(step.top[0]), percent(shares[step.top[0].id])));
  return [
    bars(rows, { full: maximum(shares), write: percent }),
    facts({
      [`${say('entropy')}, ${say('bits')}`]: number(entropyOf(shares), `entropy(${name}])`),
      'log Σ exp': number(logSumExp(changed), `logsumexp(out.logits[${t}])`),
    }),
  ];
}

// How much each step looked at each source piece: the model's alignment head, or the mean of the last layer's.
function alignment(trace) {
  const chosen = trace.document.model.alignment;
  const name = `dec.${chosen?.layer ?? trace.config.n_decoder_layers - 1}.cross.weights`;
  const [nHeads, nRows] = trace.tensors.get(name).shape;
  const heads = chosen ? [chosen.head] : range(nHeads);
  return range(nRows).map((r) => {
    const rows = heads.map((h) => trace.row(name, [h, r]));
    return Float64Array.from(rows[0], (_, c) => rows.reduce((sum, row) => sum + row[c] / rows.length, 0));
  });
}

export function pathOf(beam, node) {
  return node?.t >= 0 ? [...pathOf(beam, beam[node.parent]), node] : [];
}

// A number of a beam node.
function part(node, key, className = '') {
  return number(node[key], `beam[${node.n}].${key}`, undefined, { className });
}

function stateOf(node) {
  const lost = typeof node.lost_by === 'number' && make('small', ` ${say('lostBy')} `, part(node, 'lost_by'));
  return make('span.state', { className: node.state }, `${GLYPH[node.state]} ${say(node.state)}`, lost);
}

function penaltyLine(node, { length_penalty: alpha, penalty_form: form }) {
  const base = form === 'gnmt' ? `((5 + ${node.length}) / 6)^${alpha}` : `${Math.max(1, node.length)}^${alpha}`;
  return make('span.equation', part(node, 'total'), ` / ${base} = `, part(node, 'score', 'result'));
}

// The beam tree: one column per step, better nodes higher up; lines to the parents; arrow keys walk in it.
function tree(view, chosen) {
  const { beam } = view.document;
  const [wide, tall, top] = [104, 30, 26];
  const width = (Math.max(...beam.map((node) => node.t)) + 2) * wide;
  const height = top + tall * (1 + Math.max(...beam.map((node) => node.rank)));
  const x = (node) => (node.t + 1) * wide;
  const y = (node) => top + node.rank * tall;
  const path = new Set([0, ...pathOf(beam, chosen).map((node) => node.n)]);
  const isOn = (node) => (path.has(node.n) ? 'on-path' : '');
  const lines = beam.slice(1).map((node) => {
    const parent = beam[node.parent];
    const [x1, y1, x2, y2] = [x(parent) + wide - 18, y(parent) + 12, x(node), y(node) + 12];
    const d = `M ${x1} ${y1} C ${x1 + 14} ${y1}, ${x2 - 14} ${y2}, ${x2} ${y2}`;
    return draw('path', { d, className: `${node.state} ${isOn(node)}` });
  });
  const button = (node) => make('button.node', {
    type: 'button',
    className: `${node.state} ${isOn(node)} ${node === chosen ? 'chosen' : ''}`,
    tabindex: node === chosen ? '0' : '-1',
    'data-node': node.n,
    lang: view.lang('tgt'),
    'aria-pressed': String(node === chosen),
    style: { left: `${x(node)}px`, top: `${y(node)}px` },
    onclick: () => view.on.node(node.n),
  }, make('i', { 'aria-hidden': 'true' }, GLYPH[node.state]), label(node));
  const ticks = view.document.steps.map((_, t) => make('span.tick', {
    className: t === view.state.t ? 'now' : '',
    style: { left: `${(t + 1) * wide}px` },
    'aria-hidden': 'true',
  }, String(t)));
  const walk = (event) => {
    const node = beam[event.target.dataset.node];
    if (!node || !event.key.startsWith('Arrow')) return;
    event.preventDefault();
    event.stopPropagation();
    const sorted = (list) => list.sort((a, b) => a.rank - b.rank);
    const column = sorted(beam.filter((other) => other.t === node.t));
    const places = {
      ArrowUp: column[column.indexOf(node) - 1],
      ArrowDown: column[column.indexOf(node) + 1],
      ArrowLeft: beam[node.parent],
      ArrowRight: sorted(beam.filter((other) => other.parent === node.n))[0],
    };
    if (places[event.key]) view.on.node(places[event.key].n);
  };
  return make('div.tree', { role: 'group', 'aria-label': say('nodes'), onkeydown: walk },
    make('div.tree-canvas', { style: { width: `${width}px`, height: `${height}px` } },
      draw('svg', { width, height, 'aria-hidden': 'true' }, lines), ticks, beam.map(button)));
}
