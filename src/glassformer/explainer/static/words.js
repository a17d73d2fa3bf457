// Every sentence that the page says, in English and in French; those of the stations are in stations.json.

const TABLE = JSON.parse(document.getElementById('stations').textContent);

export const BOXES = TABLE.boxes;
export const STATIONS = TABLE.stations;

const LANGUAGES = ['en', 'fr'];

// `{0}` is the first thing that `say` is told.
const PHRASES = {
  map: ['Map', 'Carte'],
  source: ['Source', 'Source'],
  target: ['Target', 'Cible'],
  step: ['Step', 'Étape'],
  layer: ['Layer', 'Couche'],
  head: ['Head', 'Tête'],
  hypothesis: ['Hypothesis', 'Hypothèse'],
  winner: ['winner', 'gagnante'],
  back: ['Back', 'Reculer'],
  forward: ['Forward', 'Avancer'],
  play: ['Play', 'Lire'],
  pause: ['Pause', 'Pause'],
  picture: ['Picture', 'Image'],
  numbers: ['Numbers', 'Nombres'],
  arithmetic: ['Arithmetic', 'Calcul'],
  formula: ['Formula', 'Formule'],
  code: ['Code', 'Code'],
  words: ['In words', 'En mots'],
  slip: ['A common slip:', 'Une erreur fréquente :'],
  shape: ['shape', 'forme'],
  previous: ['Previous', 'Précédente'],
  next: ['Next', 'Suivante'],
  decoder: ['Decoder', 'Décodeur'],
  output: ['Output', 'Sortie'],
  stations: ['Stations', 'Stations'],
  theme: ['Theme', 'Thème'],
  auto: ['auto', 'auto'],
  light: ['light', 'clair'],
  dark: ['dark', 'sombre'],
  language: ['Language', 'Langue'],
  keys: ['Keys', 'Clavier'],
  close: ['Close', 'Fermer'],
  checking: ['checking…', 'vérification…'],
  checked: ['checked', 'vérifié'],
  checkFailed: ['does not agree', 'ne concorde pas'],
  checkTitle: ['What this page checked', 'Ce que cette page a vérifié'],
  checkIntro: [
    'Your browser computed each number again from its inputs.',
    'Votre navigateur a recalculé chaque nombre depuis ses entrées.',
  ],
  recomputed: ['recomputed from its inputs', 'recalculé depuis ses entrées'],
  projected: ['linear map, by its projection', 'application linéaire, par sa projection'],
  weights: ['linear map, with its weights', 'application linéaire, avec ses poids'],
  given: ['given from outside', 'donné de l’extérieur'],
  derived: ['computed here, so nothing to compare', 'calculé ici, rien à comparer'],
  checkSay: [
    '{0} tensors agree; the largest difference is {1}',
    '{0} tenseurs concordent ; le plus grand écart est {1}',
  ],
  checkBad: [
    '{0} of the tensors do not follow from their inputs',
    '{0} des tenseurs ne découlent pas de leurs entrées',
  ],
  tensor: ['tensor', 'tenseur'],
  difference: ['largest |Δ|', '|Δ| maximal'],
  where: ['worst number', 'pire nombre'],
  follow: ['Follow the largest part back', 'Remonter la plus grande part'],
  trail: ['Followed from', 'Suivi depuis'],
  hopBack: ['One hop back', 'Un pas en arrière'],
  pinned: ['Pinned', 'Épinglé'],
  unpin: ['Unpin', 'Désépingler'],
  nothingPinned: [
    'Choose a number in the picture to see where it comes from.',
    'Choisissez un nombre dans l’image pour voir d’où il vient.',
  ],
  rest: ['the other {0}', 'les {0} autres'],
  bias: ['bias b', 'biais b'],
  sumOf: ['A sum of {0} products, the largest first', 'Une somme de {0} produits, les plus grands d’abord'],
  comesFrom: ['It comes from', 'Il vient de'],
  share: ['share', 'part'],
  channel: ['channel', 'canal'],
  hidden: ['neuron', 'neurone'],
  word: ['word', 'mot'],
  piece: ['piece', 'morceau'],
  position: ['position', 'position'],
  logits: ['Logits, the largest first', 'Logits, les plus grands d’abord'],
  total: ['sum of log p', 'somme des log p'],
  score: ['score', 'score'],
  length: ['length', 'longueur'],
  state: ['state', 'état'],
  kept: ['kept', 'gardé'],
  pruned: ['pruned', 'élagué'],
  finished: ['finished', 'terminé'],
  lostBy: ['lost by', 'perdu de'],
  entropy: ['entropy', 'entropie'],
  bits: ['bits', 'bits'],
  tail: ['all other words', 'tous les autres mots'],
  temperature: ['Temperature', 'Température'],
  topK: ['Top-k (0: all)', 'Top-k (0 : tous)'],
  search: ['Find a word of the vocabulary', 'Chercher un mot du vocabulaire'],
  found: ['{0} found', '{0} trouvés'],
  chosen: ['chosen', 'choisi'],
  before: ['before', 'avant'],
  after: ['after', 'après'],
  sum: ['sum', 'somme'],
  sublayer: ['sublayer', 'sous-couche'],
  input: ['input', 'entrée'],
  normalised: ['normalised', 'normalisé'],
  query: ['query', 'requête'],
  key: ['key', 'clé'],
  value: ['value', 'valeur'],
  columns: ['columns', 'colonnes'],
  rows: ['rows', 'lignes'],
  force: ['Force another word here', 'Forcer un autre mot ici'],
  forceAsk: ['Which word should come at place {0}?', 'Quel mot faut-il à la place {0} ?'],
  unforce: ['Let the model choose again', 'Laisser le modèle choisir'],
  needsLive: [
    'This page is an export. For other words, sentences or hypotheses, run: glassformer explain --open',
    'Cette page est un export. Pour d’autres mots, phrases ou hypothèses : glassformer explain --open',
  ],
  type: ['A sentence to translate', 'Une phrase à traduire'],
  translate: ['Translate', 'Traduire'],
  working: ['Translating…', 'Traduction…'],
  traceThis: ['Show this hypothesis at every station', 'Montrer cette hypothèse à chaque station'],
  engineSays: [
    'translate, with its engine {0}, gives a different text: {1}',
    'translate, avec son moteur {0}, donne un autre texte : {1}',
  ],
  notEnded: [
    'The length limit cut this translation off before its end mark.',
    'La limite de longueur a coupé cette traduction avant sa marque de fin.',
  ],
  forcedRun: ['Some words of this translation were forced.', 'Certains mots de cette traduction ont été forcés.'],
  leftOut: ['This model does not have this part.', 'Ce modèle n’a pas cette partie.'],
  askWeights: ['The weights are being fetched…', 'Les poids arrivent…'],
  noteNoWeights: [
    'x · W + b: the weights are not in this file. A projection onto random signs r shows that input and output fit:',
    'x · W + b : les poids ne sont pas dans ce fichier. Une projection sur des signes aléatoires r le vérifie :',
  ],
  noteMasked: [
    'Forbidden: minus infinity, so that softmax gives it no weight at all.',
    'Interdit : moins l’infini, pour que softmax ne lui donne aucun poids.',
  ],
  noteSoftmax: [
    'The largest is subtracted, so that exp cannot overflow; it cancels out.',
    'On soustrait d’abord le plus grand, pour qu’exp ne déborde pas ; il se simplifie.',
  ],
  looks: ['“{0}” looks {1} at “{2}”', '« {0} » regarde à {1} « {2} »'],
  writes: ['To write “{0}”, it looks {1} at “{2}”', 'Pour écrire « {0} », il regarde à {1} « {2} »'],
  certain: ['The model is {1} sure of “{0}”', 'Le modèle est sûr à {1} de « {0} »'],
  startTour: ['Begin at the first station', 'Commencer à la première station'],
  parameters: ['parameters learned', 'paramètres appris'],
  channelsEach: ['channels per token', 'canaux par jeton'],
  headsEach: ['heads', 'têtes'],
  layersEach: ['layers, encoder + decoder', 'couches, encodeur + décodeur'],
  vocabulary: ['words in the vocabulary', 'mots au vocabulaire'],
  floats: ['numbers in this trace', 'nombres dans cette trace'],
  legend: ['How to read it', 'Comment lire'],
  legendSign: [
    'Blue and + above zero, orange and − below; stronger colours are further from zero.',
    'Bleu et + au-dessus de zéro, orange et − en dessous ; plus la couleur est forte, plus c’est loin de zéro.',
  ],
  legendShare: ['One colour only: shares between 0 and 1.', 'Une seule couleur : des parts entre 0 et 1.'],
  legendMasked: ['Hatched: forbidden, minus infinity.', 'Hachuré : interdit, moins l’infini.'],
  legendAddress: [
    'Every number has an address, for the URL, the terminal and Python.',
    'Chaque nombre a une adresse, pour l’URL, le terminal et Python.',
  ],
  mergeStep: ['Merge', 'Fusion'],
  merges: ['Pairs are merged, the most useful first', 'Des paires sont fusionnées, la plus utile d’abord'],
  bestPath: ['The likeliest way to cut it', 'La coupe la plus probable'],
  runnerUp: ['The next best way', 'La deuxième'],
  padNone: [
    'One sentence alone needs no padding: nothing is masked here. In a batch, the columns of <pad> would be −∞.',
    'Une phrase seule n’a pas de remplissage : rien n’est masqué. Dans un lot, les colonnes de <pad> seraient à −∞.',
  ],
  ghost: ['Without the mask, this row would be', 'Sans le masque, cette ligne serait'],
  cached: ['kept from earlier steps', 'gardé des étapes passées'],
  newNow: ['new in this step', 'nouveau à cette étape'],
  headShare: ['Share of each head in the output', 'Part de chaque tête dans la sortie'],
  headShareNote: [
    'Length of what each head adds through its part of W_O.',
    'Longueur de ce que chaque tête ajoute par sa part de W_O.',
  ],
  headContext: ['Length of each head’s part before W_O', 'Longueur de la part de chaque tête avant W_O'],
  killed: ['switched off by', 'éteints par'],
  topNeurons: ['Strongest neurons', 'Neurones les plus forts'],
  drift: [
    'Cosine to the input embedding: how far each token has come',
    'Cosinus avec l’entrée : le chemin parcouru par chaque jeton',
  ],
  memory: ['memory', 'mémoire'],
  dots: ['Mean and spread of each token, before and after', 'Moyenne et étendue de chaque jeton, avant et après'],
  alignment: ['What each word looked at most', 'Ce que chaque mot a le plus regardé'],
  reference: ['Reference', 'Référence'],
  detokenise: ['Pieces joined, ▁ becomes a space', 'Morceaux joints, ▁ devient une espace'],
  ranked: ['score = sum of log p / length penalty', 'score = somme des log p / pénalité de longueur'],
  contributions: ['Each word’s share times its value', 'La part de chaque mot fois sa valeur'],
  oneRow: ['This row, number by number', 'Cette ligne, nombre par nombre'],
  scoresBars: ['The products of this score', 'Les produits de ce score'],
  rotation: [
    'This token: query and key, before and after the rotation',
    'Ce jeton : requête et clé, avant et après la rotation',
  ],
  positionStrip: ['This token: embedding + position = x', 'Ce jeton : plongement + position = x'],
  entropyBoth: ['Entropy of softmax, before and after scaling', 'Entropie de softmax, avant et après l’échelle'],
  stack: ['through all layers', 'à travers les couches'],
  ended: ['The end mark came out: the loop is done.', 'La marque de fin est sortie : la boucle est finie.'],
  error: ['Something went wrong', 'Une erreur est survenue'],
  showing: ['{3} {0}–{1} of {2}', '{3} {0}–{1} sur {2}'],
  nodes: ['nodes', 'nœuds'],
};

// Keys and what they do.
export const KEYS = [
  { key: ['← →', '← →'], does: ['step', 'étape'] },
  { key: ['[ ]', '[ ]'], does: ['layer', 'couche'] },
  { key: [', .', ', .'], does: ['head', 'tête'] },
  { key: ['n p', 'n p'], does: ['next, previous station', 'station suivante, précédente'] },
  { key: ['1 2 3', '1 2 3'], does: ['picture, numbers, arithmetic', 'image, nombres, calcul'] },
  { key: ['Enter', 'Entrée'], does: ['arithmetic', 'calcul'] },
  { key: ['Esc', 'Échap'], does: ['unpin', 'désépingler'] },
  { key: ['Backspace', 'Retour arrière'], does: ['one hop back', 'un pas en arrière'] },
  { key: ['f', 'f'], does: ['force a word', 'forcer un mot'] },
  { key: ['Tab, arrows, Home, End', 'Tab, flèches, Début, Fin'], does: ['inside a matrix', 'dans une matrice'] },
];

export let language = 'en';

export function setLanguage(name) {
  language = LANGUAGES.includes(name) ? name : 'en';
}

// Of a phrase in all languages, the one in the page's language.
export function spoken(phrase) {
  return phrase?.[LANGUAGES.indexOf(language)];
}

export function say(key, ...parts) {
  return spoken(PHRASES[key]).replace(/\{(\d)\}/g, (_, n) => parts[n]);
}

// A station as it applies to a model: its formula, its needs, and {title, idea, words, slip} in the page's language.
export function stationFor(station, config) {
  const told = { ...station, ...station.variants?.[config.positions] };
  for (const key of ['title', 'idea', 'words', 'slip']) told[key] = spoken(told[key]);
  return told;
}

// The place among all stations of the one that has this slug or number; -1 for none.
export function placeOf(name) {
  return STATIONS.findIndex((one) => one.slug === name || String(one.number) === name);
}

// The place of the station that a tensor belongs to; `*` in a pattern is one part of the address.
const HOMES = STATIONS.flatMap(({ home = [] }, place) => home.map((pattern) => {
  const escaped = pattern.replaceAll('.', '\\.').replaceAll('*', '[^.]+');
  return [new RegExp(`^${escaped}$`), place];
}));

export function homeOf(name) {
  return HOMES.find(([pattern]) => pattern.test(name))?.[1] ?? 0;
}
