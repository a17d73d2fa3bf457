// The page: where we are (an address in the URL), the sentence pair above, the map beside, one station in the middle.

import { brief, digits, tiny } from './numbers.js';
import { openTrace } from './trace.js';
import { checkAll } from './check.js';
import { draw, formula, make, number, table } from './parts.js';
import { readPalette } from './matrix.js';
import { BOXES, homeOf, placeOf, stationFor, STATIONS } from './words.js';
import { KEYS, language, say, setLanguage, spoken } from './words.js';
import { drawStation, label, matching, pathOf, View } from './stations.js';
import { arithmetic } from './arithmetic.js';

const LIVE = document.documentElement.hasAttribute('data-live');
const $ = (id) => document.getElementById(id);
const first = (what) => document.querySelector(what);
const all = (what) => document.querySelectorAll(what);

// Where we are: the place of the station in the table, layer, head, step and source position; what is pinned.
const state = {
  ...{ station: 0, layer: 0, head: 0, t: 0, i: 0, depth: 1 },
  ...{ pin: null, node: null, trail: [], temperature: 1, topK: 0, find: '' },
};
let trace = null;
let explained = { address: null, operands: [] }; // the number whose arithmetic stands on the page
let checks = { results: [], isDone: false };
let player = null;

const on = {
  choose: (address) => trace.parse(address) && go({ pin: address }, true),
  deeper: (address) => trace.parse(address) && go({ pin: address, depth: 3 }, true),
  hover: (address, value) => ($('where').textContent = `${address} = ${digits(value)}`),
  step: (t) => go({ t }),
  head: (head) => go({ head }),
  node: (n) => {
    go({ node: n, t: trace.document.beam[n].t });
    first('.tree .node.chosen')?.focus();
  },
  traceNode: (node) => ask({ node }),
  summarise,
  hopBack: () => {
    const [pin, trail] = [state.trail.at(-1), state.trail.slice(0, -1)];
    if (pin) go({ pin, depth: 3, trail }, true);
  },
  weights: LIVE ? fetchWeights : null,
};

// ---- where we are

function limits() {
  const { n_encoder_layers, n_decoder_layers, n_heads } = trace.config;
  const isDecoder = ['dec', 'out'].includes(STATIONS[state.station]?.side);
  const layer = isDecoder ? n_decoder_layers : n_encoder_layers;
  return { station: STATIONS.length, layer, head: n_heads, t: trace.nSteps, i: trace.nSource };
}

// What was followed to come to a number: one more hop if it is an operand of the number that was explained.
function trailTo(pin) {
  return pin && explained.address && explained.operands.includes(pin) ? [...state.trail, explained.address] : [];
}

function go(changes, isNew = false) {
  const moved = ['t', 'i', 'head', 'layer'].filter((key) => key in changes && changes[key] !== state[key]);
  const isOther = (key) => key in changes && changes[key] !== state[key];
  if (isOther('station') && !('pin' in changes)) changes = { ...changes, pin: null, trail: [] };
  if (isOther('pin') && !('trail' in changes)) changes.trail = trailTo(changes.pin);
  Object.assign(state, changes);
  for (const [key, limit] of Object.entries(limits())) state[key] = Math.max(0, Math.min(limit - 1, state[key] || 0));
  if (moved.length && state.pin) state.pin = follow(state.pin, moved);
  if (changes.pin) enter(changes.pin, false);
  note(`#${hashOf()}`, isNew);
  render();
}

function note(hash, isNew) {
  try {
    if (hash !== location.hash) history[isNew ? 'pushState' : 'replaceState'](null, '', hash);
  } catch {
    // inside a notebook's frame there is no URL of our own to write to
  }
}

// Links within the page are followed here: inside a notebook's frame `#` would lead to the notebook.
function followLink(event) {
  const link = event.target.closest?.('a[href^="#"]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || link.id === 'skip') return;
  event.preventDefault();
  if (link.dataset.station) {
    travel(placeOf(link.dataset.station));
    if (innerWidth <= 1100) $('map-holder').open = false;
    return;
  }
  $('check-dialog').close();
  readHash(link.getAttribute('href'));
  note(`#${hashOf()}`, true);
  render();
}

// The number that lies at the same place of another step, head or layer.
function follow(pin, moved) {
  const { name, index, tensor } = trace.parse(pin);
  const next = [...index];
  const skip = tensor.axes[0] === 'head' ? 1 : 0;
  if (moved.includes('head') && skip) next[0] = state.head;
  if (moved.includes('t') && tensor.axes[skip]?.startsWith('tgt')) next[skip] = state.t;
  if (moved.includes('i') && tensor.axes[skip]?.startsWith('src')) next[skip] = state.i;
  const other = moved.includes('layer') ? name.replace(/^(enc|dec)\.\d+\./, `$1.${state.layer}.`) : name;
  if (!trace.has(other)) return null;
  const address = trace.address(other, next);
  return trace.parse(address) ? address : null;
}

// Go where an address lies: its layer, head and row, and its station unless we may stay.
function enter(address, toStation) {
  const found = trace.parse(address);
  const skip = found.tensor.axes[0] === 'head' ? 1 : 0;
  const layer = /^(?:enc|dec)\.(\d+)\./.exec(found.name);
  if (toStation) state.station = homeOf(found.name);
  if (layer) state.layer = Number(layer[1]);
  if (skip && found.index.length) state.head = found.index[0];
  if (found.index.length > skip) state[found.tensor.axes[skip].startsWith('src') ? 'i' : 't'] = found.index[skip];
  return found.index.length === found.tensor.shape.length;
}

function hashOf() {
  if (state.pin) {
    const home = homeOf(trace.parse(state.pin).name);
    const isTarget = /^(dec|out)/.test(state.pin);
    return [
      state.pin,
      home === state.station ? '' : `&station=${STATIONS[state.station].slug}`,
      state.depth === 3 ? '' : `&depth=${state.depth}`,
      isTarget || !state.t ? '' : `&t=${state.t}`,
    ].join('');
  }
  const { station, layer, head, t, i, depth } = state;
  const where = Object.entries({ layer, head, t, i, depth: depth === 1 ? 0 : depth }).filter(([, value]) => value);
  return [STATIONS[station].slug, ...where.map(([key, value]) => `${key}=${value}`)].join('&');
}

// A hash is a station's slug or an address, and perhaps more: `scores&head=1`, `enc.0.self.h1.q[2,3]&station=scores`.
// Older pages named stations by number: `station=5`.

function readHash(hash = location.hash) {
  const parts = decodeURIComponent(hash.slice(1)).split('&').filter(Boolean);
  const name = parts[0] && !parts[0].includes('=') ? parts.shift() : null;
  const address = placeOf(name) < 0 ? name : null;
  const given = { station: name, ...Object.fromEntries(parts.map((part) => part.split('='))) };
  const before = state.pin;
  state.pin = null;
  if (address && trace.parse(address)) {
    const isNumber = enter(address, true);
    state.pin = isNumber ? address : null;
    state.depth = isNumber ? 3 : 1;
  } else if (address) tell(`${address}?`);
  else Object.assign(state, { layer: 0, head: 0, t: 0, i: 0, depth: 1 });
  if (placeOf(given.station) >= 0) state.station = placeOf(given.station);
  for (const key of ['layer', 'head', 't', 'i', 'depth', 'node']) {
    if (/^\d+$/.test(given[key] ?? '')) state[key] = Number(given[key]);
  }
  for (const [key, limit] of Object.entries(limits())) state[key] = Math.min(limit - 1, state[key]);
  state.depth = Math.max(1, Math.min(3, state.depth));
  if (state.pin !== before) {
    const at = state.trail.indexOf(state.pin);
    state.trail = at >= 0 ? state.trail.slice(0, at) : trailTo(state.pin);
  }
}

// ---- what is seen

// Where the focus can go back to when the station is drawn anew.
function focused() {
  const focus = document.activeElement;
  if (!$('station').contains(focus)) return [];
  const { node, address } = focus.dataset;
  return [
    focus.id && `#${focus.id}`,
    node && '.node.chosen',
    address && `#station [data-address="${CSS.escape(address)}"][tabindex="0"]`,
    focus.role === 'gridcell' && '#station [role=gridcell][tabindex="0"]',
    focus.matches('.follow') && '.follow',
  ].filter(Boolean);
}

function render() {
  const kept = focused();
  renderHeader();
  renderMap();
  const view = new View(trace, state, on);
  const about = stationFor(STATIONS[state.station], trace.config);
  const content = drawStation(view);
  const target = state.pin ?? view.main;
  const tensor = target ? trace.parse(target)?.tensor : null;
  explained = { address: null, operands: [] };
  let worked = null;
  if (state.depth === 3 && target && trace.parse(target)) {
    const names = (kind, n) => ({ src: view.source, tgt: view.target })[kind]?.[n] ?? `${say('channel')} ${n}`;
    const told = arithmetic(trace, target, { names, trail: state.trail, on });
    explained = { address: target, operands: told.operands };
    worked = told.element;
  } else if (state.depth === 3) worked = make('p.hint', say('nothingPinned'));
  $('number').textContent = about.number;
  $('title').textContent = about.title;
  $('idea').textContent = about.idea;
  renderChoices(about);
  $('station').replaceChildren(...[worked, ...content].filter(Boolean));
  if (view.summary !== null) summarise(view.summary);
  const node = first('.tree .node.chosen');
  if (node) node.closest('.tree').scrollLeft = node.offsetLeft - node.closest('.tree').clientWidth / 2;
  renderAside(about, tensor);
  renderFooter(target, tensor);
  paintAll();
  if (!$('station').contains(document.activeElement)) kept.map(first).find(Boolean)?.focus({ preventScroll: true });
  document.title = `${about.number} ${about.title} · ${trace.document.run.src.slice(0, 40)}`;
}

function paintAll() {
  for (const canvas of all('#station canvas')) canvas.paint();
}

function summarise(text) {
  if ($('summary').textContent !== text) $('summary').textContent = text;
}

function tell(text) {
  $('message').textContent = text;
  $('message').hidden = !text;
}

function renderHeader() {
  const { tokens, steps, run, beam, model } = trace.document;
  renderSentence($('source'), tokens.src, model.src_lang, 'i');
  renderSentence($('target'), tokens.tgt.slice(1), model.tgt_lang, 't');
  const other = state.node !== null && state.node !== run.node && beam[state.node];
  const text = other ? pathOf(beam, other).map(label).join(' ') : '';
  const span = make('span', { lang: model.tgt_lang || null, dir: 'auto' }, text);
  $('other').replaceChildren(...(other ? [`${say('hypothesis')}: `, span] : []));
  Object.assign($('scrubber'), { max: steps.length - 1, value: state.t });
  $('scrubber').setAttribute('aria-valuetext', `${state.t}: ${label(tokens.tgt[state.t + 1])}`);
  $('count').textContent = `t = ${state.t} / ${steps.length - 1}`;
  $('back').disabled = state.t === 0;
  $('forward').disabled = state.t === steps.length - 1;
  const current = state.node ?? run.node;
  $('beam').value = [...$('beam').options].some((option) => option.value === String(current)) ? current : run.node;
}

// The tokens of a sentence as buttons; the one at state[key] is chosen.
function renderSentence(row, list, lang, key) {
  const isTarget = key === 't';
  const button = (token, n) => {
    const choose = () => go(isTarget ? { t: n } : { i: n });
    return make('button.chip', { type: 'button', lang: lang || null, dir: 'auto', onclick: choose }, label(token));
  };
  const isNew = row.shows !== trace;
  if (isNew) row.replaceChildren(...list.map(button));
  [...row.children].forEach((one, n) => {
    const isNow = n === state[key];
    const isForced = isTarget && trace.document.run.forced.some(([t]) => t === n);
    const kinds = { tgt: isTarget, src: !isTarget, chosen: isNow, mark: list[n].mark, forced: isForced };
    kinds.later = isTarget && n > state.t;
    for (const [kind, isSo] of Object.entries(kinds)) one.classList.toggle(kind, Boolean(isSo));
    one.ariaPressed = String(isNow);
    one.tabIndex = isNow ? 0 : -1;
  });
  if (isNew || row.at !== state[key]) row.scrollTop = row.children[state[key]].offsetTop - row.offsetTop - 20;
  Object.assign(row, { shows: trace, at: state[key] });
}

function renderChoices({ needs = [] }) {
  $('layer').textContent = `${state.layer} / ${limits().layer - 1}`;
  $('head').textContent = `${state.head} / ${trace.config.n_heads - 1}`;
  $('layers').disabled = !needs.includes('layer');
  $('heads').disabled = !needs.includes('head');
  for (const depth of [1, 2, 3]) $(`depth${depth}`).setAttribute('aria-pressed', String(state.depth === depth));
  $('previous').disabled = state.station === 0;
  $('next').disabled = state.station === STATIONS.length - 1;
  $('jump').value = STATIONS[state.station].slug;
}

// Figure 1 of the paper as boxes, each with its address and its stations.
function renderMap() {
  if ($('map').dataset.language !== language) buildMap();
  const view = new View(trace, state, on);
  for (const box of all('#map [data-part]')) {
    box.querySelector('code').textContent = box.dataset.part.replace(/^(enc|dec)\.\*/, (_, side) => view.at(side));
  }
  for (const one of all('#map a')) {
    const isHere = one.dataset.station === STATIONS[state.station].slug;
    one.ariaCurrent = isHere ? 'page' : null;
    if (!isHere) continue;
    for (const box of all('#map .box')) box.classList.toggle('here', box.contains(one));
    const nav = one.closest('nav');
    const [inner, outer] = [one.getBoundingClientRect(), nav.getBoundingClientRect()];
    const by = Math.min(0, inner.top - outer.top - 60) + Math.max(0, inner.bottom - outer.bottom + 30);
    if (nav.scrollHeight > nav.clientHeight) nav.scrollTop += by;
  }
  drawArrow();
}

function buildMap() {
  const { config } = trace;
  const titleOf = (station) => `${station.number} ${stationFor(station, config).title}`;
  const stop = (station) => {
    const [title, slug] = [titleOf(station), station.slug];
    return make('a', { href: `#${slug}`, 'data-station': slug, title, 'aria-label': title }, String(station.number));
  };
  const draws = ({ side, box, part, title, ...titles }) => {
    const stations = STATIONS.filter((one) => one.side === side && one.box === box);
    const properties = { className: stations.length > 1 && 'many', 'data-part': part, 'data-box': `${side}.${box}` };
    return make('div.box', properties, make('span.name', spoken(titles[config.norm] ?? title)), make('code', part),
      make('span.stops', stations.map(stop)));
  };
  const boxes = (...sides) => BOXES.filter(({ side }) => sides.includes(side));
  const tower = (name, layers, ...sides) => {
    const all = boxes(...sides);
    const first = all.findIndex(({ part }) => part.includes('*'));
    const last = all.findLastIndex(({ part }) => part.includes('*')) + 1;
    return make(`div.tower.${name}`, all.slice(0, first).map(draws),
      make('div.stack', make('span.times', `× ${layers}`), all.slice(first, last).map(draws)),
      all.slice(last).map(draws));
  };
  $('map').replaceChildren(
    draw('svg', { id: 'arrow', 'aria-hidden': 'true' }),
    tower('enc', config.n_encoder_layers, 'enc'),
    tower('dec', config.n_decoder_layers, 'dec', 'out'),
    make('div.whole', boxes('all').map(draws)));
  $('jump').replaceChildren(...STATIONS.map((one) => make('option', { value: one.slug }, titleOf(one))));
  $('map').dataset.language = language;
}

function drawArrow() {
  const boxes = [first('[data-box="enc.memory"]'), first('[data-box="dec.cross"]'), $('map')];
  const [from, to, map] = boxes.map((element) => element?.getBoundingClientRect());
  if (!from?.width) return;
  const [x1, x2] = [from.right - map.left, to.left - map.left - 1];
  const [y1, y2] = [from, to].map((box) => box.top + box.height / 2 - map.top);
  const d = `M ${x1} ${y1} H ${(x1 + x2) / 2} V ${y2} H ${x2} m -5 -4 l 5 4 l -5 4`;
  $('arrow').replaceChildren(draw('path', { d }));
}

function renderAside(about, tensor) {
  const operation = tensor && trace.document.operations?.[tensor.op];
  const isPre = trace.config.norm === 'pre';
  const written = isPre ? about.formula.replace('x + sublayer', 'x; x + sublayer(y)') : about.formula;
  const listing = (where, lines) => [make('p.hint', where), make('pre', { tabindex: '0' }, lines)];
  $('formula').replaceChildren(make('h3', say('formula')), formula(written));
  $('words').replaceChildren(make('h3', say('words')), make('p', about.words));
  $('code').replaceChildren(
    ...(tensor ? [make('h3', say('code')), ...listing(tensor.code, tensor.line)] : []),
    ...(operation ? listing(`${tensor.op} · ${operation.code}`, operation.source) : []));
  $('slip').replaceChildren(make('p', make('b', say('slip')), ` ${about.slip}`));
  $('slip').hidden = !about.slip;
}

function renderFooter(target, tensor) {
  $('where').textContent = tensor ? `${target} = ${digits(trace.at(target))}` : '';
  $('shape').textContent = tensor ? `${say('shape')} ${tensor.shape.join(' × ')} (${tensor.axes.join(', ')})` : '';
  $('unpin').hidden = !state.pin;
}

function renderBadge() {
  const { results, isDone } = checks;
  const bad = results.filter((one) => !one.isRight);
  const checked = results.filter((one) => one.kind !== 'given' && one.kind !== 'derived');
  const most = Math.max(0, ...checked.map((one) => one.most));
  const badge = $('badge');
  badge.dataset.state = bad.length ? 'bad' : isDone ? 'good' : 'busy';
  if (bad.length) badge.replaceChildren(`✗ ${bad.length} ${say('checkFailed')}`);
  else if (!isDone) badge.replaceChildren(say('checking'));
  else badge.replaceChildren(`✓ ${checked.length} ${say('checked')}`, make('span.long', `, |Δ| ≤ ${tiny(most)}`));
  if (!isDone) return;
  const kinds = ['recomputed', 'projected', 'weights', 'given', 'derived'].map((kind) => {
    const n = results.filter((one) => one.kind === kind).length;
    return n > 0 && make('li', `${n} × ${say(kind)}`);
  });
  const rows = checked.sort((a, b) => a.isRight - b.isRight || b.most - a.most).slice(0, 60).map((one) => {
    const address = one.worst ? trace.address(one.at ?? one.name, one.worst) : '';
    const difference = number(one.most, `max|Δ|(${one.name})`, tiny(one.most));
    const cells = [`${one.isRight ? '✓' : '✗'} ${one.name}`, difference, make('a', { href: `#${address}` },
      address)];
    return { className: one.isRight ? '' : 'bad', cells };
  });
  $('checks').replaceChildren(
    make('p', say('checkIntro')),
    make('b', bad.length ? say('checkBad', bad.length) : say('checkSay', checked.length, tiny(most))),
    make('ul', kinds),
    table(['tensor', 'difference', 'where'].map((key) => say(key)), rows));
}

// ---- keys, buttons, the live server

function travel(station) {
  go({ station, depth: Math.min(2, state.depth) }, true);
}

function unpin() {
  go({ pin: null, depth: state.depth === 3 ? 1 : state.depth });
}

function by(key, amount) {
  return () => go({
    [key]: state[key] + amount
  });
}

// What buttons do, by their id; `data-key` says which keys do the same.
const ACTIONS = {
  back: by('t', -1),
  forward: by('t', 1),
  play,
  force,
  previous: () => travel(state.station - 1),
  next: () => travel(state.station + 1),
  'layer-less': by('layer', -1),
  'layer-more': by('layer', 1),
  'head-less': by('head', -1),
  'head-more': by('head', 1),
  depth1: () => go({ depth: 1 }),
  depth2: () => go({ depth: 2 }),
  depth3: () => go({ depth: 3 }),
  unpin,
  badge: () => $('check-dialog').showModal(),
  help: () => $('key-dialog').showModal(),
};

function keydown(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || first('dialog[open]')) return;
  const field = event.target.closest('input, select, textarea');
  const isSliding = /^(Arrow|Home$|End$)/.test(event.key);
  if (field && (field.type !== 'range' || isSliding)) return;
  const button = first(`[data-key~="${CSS.escape(event.key)}"]`);
  const action = event.key === 'Backspace' ? on.hopBack : ACTIONS[button?.id];
  if (!action) return;
  if (event.key === 'Enter' && event.target.closest('a, button, summary')) return;
  if (event.key.startsWith('Arrow') && event.target.closest('.scroll, pre')) return;
  event.preventDefault();
  action();
}

async function fetchWeights({ name, column }) {
  const response = await fetch(`api/weights${location.search}&name=${encodeURIComponent(name)}&column=${column}`);
  if (!response.ok) return;
  const { weights, bias } = await response.json();
  trace.columns.set(`${name}:${column}`, { weights, bias });
  render();
}

// Ask the live server for another translation: another sentence, forced words, another hypothesis.
async function ask(wish) {
  tell(say(LIVE ? 'working' : 'needsLive'));
  if (!LIVE) return;
  document.body.classList.add('busy');
  try {
    const { src, forced } = trace?.document.run ?? { src: '', forced: [] };
    const response = await fetch(`api/trace${location.search}`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ text: src, forced, ...wish }),
    });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    tell('');
    await show(answer);
  } catch (error) {
    tell(`${say('error')}: ${error.message}`);
  } finally {
    document.body.classList.remove('busy');
  }
}

function force() {
  const { steps, vocabulary, model, run } = trace.document;
  const step = steps[state.t];
  const list = make('div.options');
  const field = make('input', { type: 'search', id: 'force-word', autocomplete: 'off' });
  const choose = (forced) => () => {
    $('force-dialog').close();
    ask({ forced });
  };
  const kept = run.forced.filter(([t]) => t < state.t);
  const option = (id) => make('button', {
    type: 'button',
    lang: model.tgt_lang || null,
    className: id === step.chosen && 'chosen',
    onclick: choose([...kept, [state.t, id]]),
  }, vocabulary[id]);
  const fill = () => {
    const ids = field.value ? matching(vocabulary, field.value).slice(0, 24) : step.top.map((word) => word.id);
    list.replaceChildren(...ids.map(option));
  };
  field.addEventListener('input', fill);
  fill();
  const undo = () => make('button.button', { type: 'button', onclick: choose([]) }, say('unforce'));
  $('force-body').replaceChildren(
    make('p', make('label', { for: 'force-word' }, say('forceAsk', state.t + 1))),
    LIVE ? '' : make('p.hint', say('needsLive')),
    field, list, run.forced.length ? undo() : '');
  $('force-dialog').showModal();
}

function play() {
  if (player || state.t === trace.nSteps - 1) {
    clearInterval(player);
    player = null;
  } else player = setInterval(() => (state.t < trace.nSteps - 1 ? go({ t: state.t + 1 }) : play()), 900);
  $('play').textContent = player ? '❚❚' : '▶';
  $('play').setAttribute('aria-label', say(player ? 'pause' : 'play'));
}

function words() {
  document.documentElement.lang = language;
  for (const element of all('[data-say]')) element.textContent = say(element.dataset.say);
  for (const element of all('[data-label]')) {
    element.setAttribute('aria-label', say(element.dataset.label));
    element.title = say(element.dataset.label);
  }
  const keyOf = ({ key, does }) => [make('dt', make('kbd', spoken(key))), make('dd', spoken(does))];
  $('key-list').replaceChildren(...KEYS.flatMap(keyOf));
  $('sentence').placeholder = say('type');
}

// What the reader chose, kept if the browser lets a page from disk keep anything.
function setting(key, value) {
  try {
    if (value) localStorage.setItem(`glassformer.${key}`, value);
    return localStorage.getItem(`glassformer.${key}`);
  } catch {
    return null;
  }
}

function wear(theme) {
  document.documentElement.dataset.theme = theme;
  $('theme').value = theme;
  readPalette();
  if (trace) paintAll();
}

function connect() {
  for (const [id, action] of Object.entries(ACTIONS)) $(id).addEventListener('click', action);
  $('skip').addEventListener('click', (event) => {
    event.preventDefault();
    $('station').focus();
  });
  for (const button of all('dialog .close')) button.addEventListener('click', () => button.closest('dialog').close());
  $('scrubber').addEventListener('input', (event) => go({ t: Number(event.target.value) }));
  $('jump').addEventListener('change', (event) => travel(placeOf(event.target.value)));
  $('beam').addEventListener('change', (event) => {
    const n = Number(event.target.value);
    go({ node: n });
    if (n !== trace.document.run.node) on.traceNode(n);
    else tell('');
  });
  $('theme').addEventListener('change', (event) => {
    setting('theme', event.target.value);
    wear(event.target.value);
  });
  $('language').addEventListener('change', (event) => {
    setting('language', event.target.value);
    setLanguage(event.target.value);
    words();
    renderBadge();
    render();
  });
  $('ask').addEventListener('submit', (event) => {
    event.preventDefault();
    Object.assign(state, { t: 0, i: 0, pin: null, node: null, trail: [] });
    ask({ text: $('sentence').value, forced: [] });
  });
  for (const [id, key] of Object.entries({ source: 'i', target: 't' })) {
    $(id).addEventListener('keydown', (event) => {
      const steps = { ArrowLeft: -1, ArrowRight: 1 };
      if (!(event.key in steps)) return;
      event.preventDefault();
      event.stopPropagation();
      by(key, steps[event.key])();
      $(id).querySelector('.chosen')?.focus({ preventScroll: true });
    });
  }
  document.addEventListener('keydown', keydown);
  document.addEventListener('click', followLink);
  window.addEventListener('hashchange', () => {
    readHash();
    render();
  });
  const redraw = () => {
    if (!trace) return;
    paintAll();
    drawArrow();
  };
  new ResizeObserver(redraw).observe(first('main'));
  const darkness = matchMedia('(prefers-color-scheme: dark)');
  darkness.addEventListener('change', () => wear(document.documentElement.dataset.theme));
}

async function show(traceDocument) {
  trace = await openTrace(traceDocument);
  const { run, model, beam } = traceDocument;
  state.node = null;
  const ended = beam.filter((node) => node.state === 'winner' || node.state === 'finished');
  const option = (node, n) => {
    const [star, text] = [node.state === 'winner' ? '★' : '', pathOf(beam, node).map(label).join(' ').slice(0, 60)];
    return make('option', { value: node.n }, `${n + 1} ${star} ${brief(node.score)} ${text}`);
  };
  $('beam').replaceChildren(...ended.sort((a, b) => b.score - a.score).map(option));
  $('sentence').value = run.src;
  $('model-name').textContent = model.name;
  const warnings = [
    run.engine && !run.engine.same && say('engineSays', run.engine.name, run.engine.text),
    !run.ended && say('notEnded'),
    run.forced.length > 0 && say('forcedRun'),
  ];
  $('warnings').replaceChildren(...warnings.filter(Boolean).map((text) => make('p', text)));
  $('map').dataset.language = '';
  readHash();
  render();
  document.body.classList.add('ready');
  checks = { results: [], isDone: false };
  renderBadge();
  const shown = trace;
  await checkAll(trace, (results, isDone) => {
    if (shown !== trace) return;
    checks = { results: [...results], isDone };
    renderBadge();
  });
  document.body.classList.add('checked');
}

async function begin() {
  setLanguage(setting('language') ?? (navigator.language.startsWith('fr') ? 'fr' : 'en'));
  $('language').value = language;
  wear(setting('theme') ?? 'auto');
  words();
  connect();
  if (innerWidth <= 1100) $('map-holder').open = false;
  $('ask').hidden = !LIVE;
  const stored = $('trace').textContent.trim();
  if (stored) await show(JSON.parse(stored));
  else if (LIVE) await ask({});
  else tell('no trace');
}

await begin();
