// Every sentence that the page says, in English and in French.

const PHRASES = {
  en: {
    map: 'Map', source: 'Source', target: 'Target', step: 'Step', layer: 'Layer', head: 'Head', hypothesis: 'Hypothesis',
    winner: 'winner', back: 'Back', forward: 'Forward', play: 'Play', pause: 'Pause', picture: 'Picture', numbers: 'Numbers', arithmetic: 'Arithmetic',
    formula: 'Formula', code: 'Code', words: 'In words', notes: 'What the notes say', shape: 'shape', station: 'Station', previous: 'Previous', next: 'Next',
    decoder: 'Decoder', output: 'Output', stations: 'Stations', theme: 'Theme', auto: 'auto', light: 'light', dark: 'dark', language: 'Language', keys: 'Keys', close: 'Close',
    checking: 'checking…', checked: 'checked', checkFailed: 'does not agree', checkTitle: 'What this page checked', 
    checkIntro: 'Your browser computed each number again from its inputs.',
    recomputed: 'recomputed from its inputs', projected: 'linear map, by its projection', weights: 'linear map, with its weights', given: 'given from outside', derived: 'computed here, so nothing to compare',
    checkSay: (n, most) => `${n} tensors agree; the largest difference is ${most}`,
    checkBad: (n) => `${n} of the tensors do not follow from their inputs`,
    tensor: 'tensor', difference: 'largest |Δ|', where: 'worst number',
    follow: 'Follow the largest part back', trail: 'Followed from', hopBack: 'One hop back', pinned: 'Pinned', unpin: 'Unpin', nothingPinned: 'Choose a number in the picture to see where it comes from.',
    rest: (n) => `the other ${n}`, bias: 'bias b', sumOf: (n, what) => `A sum of ${n} products, the largest first`, comesFrom: 'It comes from', share: 'share',
    channel: 'channel', hidden: 'neuron', word: 'word', piece: 'piece', position: 'position', logits: 'Logits, the largest first', total: 'sum of log p', score: 'score', length: 'length', state: 'state', 
    kept: 'kept', pruned: 'pruned', finished: 'finished', lostBy: 'lost by', entropy: 'entropy', bits: 'bits', tail: 'all other words', temperature: 'Temperature', topK: 'Top-k (0: all)', search: 'Find a word of the vocabulary', found: (n) => `${n} found`,
    chosen: 'chosen', before: 'before', after: 'after', sum: 'sum', mean: 'mean', sublayer: 'sublayer', input: 'input', normalised: 'normalised', query: 'query', key: 'key', value: 'value', table: 'as a table', columns: 'columns', rows: 'rows',
    force: 'Force another word here', forceAsk: (t) => `What should stand at place ${t} instead?`, forced: 'forced', unforce: 'Let the model choose again', needsLive: 'This page is an export. For other words, sentences or hypotheses, run: glassformer explain --open',
    type: 'A sentence to translate', translate: 'Translate', working: 'Translating…', traceThis: 'Show this hypothesis at every station', 
    engineSays: (name, text) => `translate, with its engine ${name}, gives another text: ${text}`, notEnded: 'The length limit cut this translation off before its end mark.', forcedRun: 'Some words of this translation were forced.',
    leftOut: 'This model leaves this part out.', askWeights: 'The weights are being fetched…',
    
    noteNoWeights: 'x · W + b: the weights are not in this file. A projection onto random signs r shows that input and output fit:', noteMasked: 'Forbidden: minus infinity, so that softmax gives it no weight at all.', 
    noteSoftmax: 'The largest is subtracted, so that exp cannot overflow; it cancels out.', 
    looks: (q, share, k) => `“${q}” looks ${share} at “${k}”`, writes: (word, share, k) => `To write “${word}”, it looks ${share} at “${k}”`, certain: (word, share) => `The model is ${share} sure of “${word}”`, 
    startTour: 'Begin at the first station', parameters: 'numbers learned', channelsEach: 'channels a token', headsEach: 'heads', layersEach: 'layers, encoder + decoder', vocabulary: 'words in the vocabulary', floats: 'numbers in this trace', legend: 'How to read it',
    legendSign: 'Blue and + above zero, orange and − below; stronger is further.', legendShare: 'One colour only: shares between 0 and 1.', legendMasked: 'Hatched: forbidden, minus infinity.', legendAddress: 'Every number has an address, for the URL, the terminal and Python.',
    keyList: [['← →', 'step'], ['[ ]', 'layer'], [', .', 'head'], ['n p', 'next, previous station'], ['1 2 3', 'picture, numbers, arithmetic'], ['Enter', 'arithmetic'], ['Esc', 'unpin'], ['Backspace', 'one hop back'], ['f', 'force a word'], ['Tab, arrows, Home, End', 'inside a matrix']],
    mergeStep: 'Merge', merges: 'Pairs are merged, the most useful first', bestPath: 'The likeliest way to cut it', runnerUp: 'The next best way', padNone: 'One sentence alone needs no padding: nothing is masked here. In a batch, the columns of <pad> would be −∞.',
    ghost: 'Without the mask, this row would be', cached: 'kept from earlier steps', newNow: 'new in this step', headShare: 'Share of each head in the output', headShareNote: 'Length of what each head adds through its part of W_O.', headContext: 'Length of each head’s part before W_O',
    killed: 'switched off by', topNeurons: 'Strongest neurons', drift: 'Cosine to the input embedding: how far each token has come', memory: 'memory', dots: 'Mean and spread of each token, before and after',
    alignment: 'What each word looked at most', reference: 'Reference', detokenise: 'Pieces joined, ▁ becomes a space', ranked: 'score = sum of log p / length penalty', contributions: 'Each word’s share times its value', oneRow: 'This row, number by number', scoresBars: 'The products of this score', positionStrip: 'This token: embedding + position = x', entropyBoth: 'Entropy of softmax, before and after scaling', stack: 'through all layers', ended: 'The end mark came out: the loop is done.', error: 'That did not work', showing: (a, b, n, what) => `${what} ${a}–${b} of ${n}`, nodes: 'nodes', 
  },
  fr: {
    map: 'Carte', source: 'Source', target: 'Cible', step: 'Étape', layer: 'Couche', head: 'Tête', hypothesis: 'Hypothèse',
    winner: 'gagnante', back: 'Reculer', forward: 'Avancer', play: 'Lire', pause: 'Pause', picture: 'Image', numbers: 'Nombres', arithmetic: 'Calcul',
    formula: 'Formule', code: 'Code', words: 'En mots', notes: 'Ce que disent les notes', shape: 'forme', station: 'Station', previous: 'Précédente', next: 'Suivante',
    decoder: 'Décodeur', output: 'Sortie', stations: 'Stations', theme: 'Thème', auto: 'auto', light: 'clair', dark: 'sombre', language: 'Langue', keys: 'Clavier', close: 'Fermer',
    checking: 'vérification…', checked: 'vérifié', checkFailed: 'ne concorde pas', checkTitle: 'Ce que cette page a vérifié', 
    checkIntro: 'Votre navigateur a recalculé chaque nombre depuis ses entrées.',
    recomputed: 'recalculé depuis ses entrées', projected: 'application linéaire, par sa projection', weights: 'application linéaire, avec ses poids', given: 'donné de l’extérieur', derived: 'calculé ici, rien à comparer',
    checkSay: (n, most) => `${n} tenseurs concordent ; le plus grand écart est ${most}`,
    checkBad: (n) => `${n} des tenseurs ne découlent pas de leurs entrées`,
    tensor: 'tenseur', difference: '|Δ| maximal', where: 'pire nombre',
    follow: 'Remonter la plus grande part', trail: 'Suivi depuis', hopBack: 'Un pas en arrière', pinned: 'Épinglé', unpin: 'Désépingler', nothingPinned: 'Choisissez un nombre dans l’image pour voir d’où il vient.',
    rest: (n) => `les ${n} autres`, bias: 'biais b', sumOf: (n) => `Une somme de ${n} produits, les plus grands d’abord`, comesFrom: 'Il vient de', share: 'part',
    channel: 'canal', hidden: 'neurone', word: 'mot', piece: 'morceau', position: 'position', logits: 'Logits, les plus grands d’abord', total: 'somme des log p', score: 'score', length: 'longueur', state: 'état', 
    kept: 'gardé', pruned: 'élagué', finished: 'terminé', lostBy: 'perdu de', entropy: 'entropie', bits: 'bits', tail: 'tous les autres mots', temperature: 'Température', topK: 'Top-k (0 : tous)', search: 'Chercher un mot du vocabulaire', found: (n) => `${n} trouvés`,
    chosen: 'choisi', before: 'avant', after: 'après', sum: 'somme', mean: 'moyenne', sublayer: 'sous-couche', input: 'entrée', normalised: 'normalisé', query: 'requête', key: 'clé', value: 'valeur', table: 'en tableau', columns: 'colonnes', rows: 'lignes',
    force: 'Forcer un autre mot ici', forceAsk: (t) => `Que faut-il mettre à la place ${t} ?`, forced: 'forcé', unforce: 'Laisser le modèle choisir', needsLive: 'Cette page est un export. Pour d’autres mots, phrases ou hypothèses : glassformer explain --open',
    type: 'Une phrase à traduire', translate: 'Traduire', working: 'Traduction…', traceThis: 'Montrer cette hypothèse à chaque station', 
    engineSays: (name, text) => `translate, avec son moteur ${name}, donne un autre texte : ${text}`, notEnded: 'La limite de longueur a coupé cette traduction avant sa marque de fin.', forcedRun: 'Certains mots de cette traduction ont été forcés.',
    leftOut: 'Ce modèle n’a pas cette partie.', askWeights: 'Les poids arrivent…',
    
    noteNoWeights: 'x · W + b : les poids ne sont pas dans ce fichier. Une projection sur des signes aléatoires r montre que l’entrée et la sortie concordent :', noteMasked: 'Interdit : moins l’infini, pour que softmax ne lui donne aucun poids.', 
    noteSoftmax: 'On soustrait d’abord le plus grand, pour qu’exp ne déborde pas ; il se simplifie.', 
    looks: (q, share, k) => `« ${q} » regarde à ${share} « ${k} »`, writes: (word, share, k) => `Pour écrire « ${word} », il regarde à ${share} « ${k} »`, certain: (word, share) => `Le modèle est sûr à ${share} de « ${word} »`, 
    startTour: 'Commencer à la première station', parameters: 'nombres appris', channelsEach: 'canaux par jeton', headsEach: 'têtes', layersEach: 'couches, encodeur + décodeur', vocabulary: 'mots au vocabulaire', floats: 'nombres dans cette trace', legend: 'Comment lire',
    legendSign: 'Bleu et + au-dessus de zéro, orange et − en dessous ; plus fort, plus loin.', legendShare: 'Une seule couleur : des parts entre 0 et 1.', legendMasked: 'Hachuré : interdit, moins l’infini.', legendAddress: 'Chaque nombre a une adresse, pour l’URL, le terminal et Python.',
    keyList: [['← →', 'étape'], ['[ ]', 'couche'], [', .', 'tête'], ['n p', 'station suivante, précédente'], ['1 2 3', 'image, nombres, calcul'], ['Entrée', 'calcul'], ['Échap', 'désépingler'], ['Retour arrière', 'un pas en arrière'], ['f', 'forcer un mot'], ['Tab, flèches, Début, Fin', 'dans une matrice']],
    mergeStep: 'Fusion', merges: 'Des paires sont fusionnées, la plus utile d’abord', bestPath: 'La coupe la plus probable', runnerUp: 'La deuxième', padNone: 'Une phrase seule n’a pas de remplissage : rien n’est masqué ici. Dans un lot, les colonnes de <pad> seraient à −∞.',
    ghost: 'Sans le masque, cette ligne serait', cached: 'gardé des étapes passées', newNow: 'nouveau à cette étape', headShare: 'Part de chaque tête dans la sortie', headShareNote: 'Longueur de ce que chaque tête ajoute par sa part de W_O.', headContext: 'Longueur de la part de chaque tête avant W_O',
    killed: 'éteints par', topNeurons: 'Neurones les plus forts', drift: 'Cosinus avec l’entrée : le chemin parcouru par chaque jeton', memory: 'mémoire', dots: 'Moyenne et étendue de chaque jeton, avant et après',
    alignment: 'Ce que chaque mot a le plus regardé', reference: 'Référence', detokenise: 'Morceaux joints, ▁ devient une espace', ranked: 'score = somme des log p / pénalité de longueur', contributions: 'La part de chaque mot fois sa valeur', oneRow: 'Cette ligne, nombre par nombre', scoresBars: 'Les produits de ce score', positionStrip: 'Ce jeton : plongement + position = x', entropyBoth: 'Entropie de softmax, avant et après l’échelle', stack: 'à travers les couches', ended: 'La marque de fin est sortie : la boucle est finie.', error: 'Cela n’a pas marché', showing: (a, b, n, what) => `${what} ${a}–${b} sur ${n}`, nodes: 'nœuds', 
  },
};

let language = 'en';

export function setLanguage(name) {
  language = name in PHRASES ? name : 'en';
}

export function currentLanguage() {
  return language;
}

export function say(key, ...parts) {
  const phrase = PHRASES[language][key] ?? PHRASES.en[key];
  return typeof phrase === 'function' ? phrase(...parts) : phrase;
}

// The text of a station in the language of the page: {title, idea, words, erratum}.
export function textOf(station) {
  const [title, idea, words] = station[language] ?? station.en;
  const erratum = station.notes?.[language] ?? station.notes?.en ?? null;
  return { title, idea, words, erratum };
}

const NORM_NOTES = {
  en: '003 prints σ₁ = σ₂ = 2. Its own formula gives σ₁ = 4.8132 and σ₂ = 2.4495, hence (−0.3116, −1.0388, 1.3505) and (−1.2247, 1.2247, 0); its means, 2 and 1, are right. 000 calls the words the channels; they are the d_model entries of one token.',
  fr: '003 donne σ₁ = σ₂ = 2. Sa propre formule donne σ₁ = 4,8132 et σ₂ = 2,4495, donc (−0,3116 ; −1,0388 ; 1,3505) et (−1,2247 ; 1,2247 ; 0) ; ses moyennes, 2 et 1, sont justes. 000 appelle canaux les mots ; ce sont les d_model entrées d’un jeton.',
};
const NORM_FORMULA = 'y = γ · (z − μ) / √(σ² + ε) + β,   z = x + sublayer';

// Title, idea in a sentence, words; formula; what the notes err in. `side` is where the station stands on the map.
export const STATIONS = [
  { id: 0, side: 'all', formula: 'p(y | x) = Π_{t} p(y_{t} | y_{<t}, x)',
    en: ['Map', 'A sentence goes up the left tower, and its translation comes out of the right one, word by word.', 'The encoder reads the whole source at once. The decoder reads what it has written so far and, through cross-attention, the encoder’s memory; then it chooses one more word.'],
    fr: ['Carte', 'Une phrase monte dans la tour de gauche, et sa traduction sort de celle de droite, mot à mot.', 'L’encodeur lit toute la source d’un coup. Le décodeur lit ce qu’il a déjà écrit et, par l’attention croisée, la mémoire de l’encodeur ; puis il choisit un mot de plus.'] },
  { id: 1, side: 'enc', box: 'pieces', formula: 'text → pieces → ids',
    en: ['Text to pieces', 'The sentence is cut into pieces that the model knows by number.', 'Frequent words stay whole, rare ones fall into parts. ▁ begins a word, </s> ends the sentence, and in a batch <pad> fills up the shorter ones.'],
    fr: ['Du texte aux morceaux', 'La phrase est coupée en morceaux que le modèle connaît par leur numéro.', 'Les mots fréquents restent entiers, les rares se divisent. ▁ commence un mot, </s> finit la phrase, et dans un lot <pad> complète les plus courtes.'] },
  { id: 2, side: 'enc', box: 'embed', formula: 'e = E[id] · √d_{model}',
    en: ['Embedding', 'Each id picks one row of a table: the word as a vector.', 'The same table serves every position. The paper multiplies each row by √d_model, so that the position, added next, does not drown it.'],
    fr: ['Plongement', 'Chaque id choisit une ligne d’une table : le mot comme vecteur.', 'La même table sert à toutes les positions. L’article multiplie chaque ligne par √d_model, pour que la position, ajoutée ensuite, ne la noie pas.'] },
  { id: 3, side: 'enc', box: 'embed', formula: 'PE(pos, 2i) = sin(pos / 10000^{2i/d}),   PE(pos, 2i+1) = cos(pos / 10000^{2i/d})',
    en: ['Positions', 'A pattern of waves tells the model where each word stands.', 'Fast waves on the left, slow ones on the right. Without them, “The woman ate the raccoon” and “The raccoon ate the woman” would be the same set of words. A shift in place rotates each sin/cos pair.'],
    fr: ['Positions', 'Un motif d’ondes dit au modèle où se tient chaque mot.', 'Ondes rapides à gauche, lentes à droite. Sans elles, « The woman ate the raccoon » et « The raccoon ate the woman » seraient le même ensemble de mots. Un décalage tourne chaque paire sin/cos.'],
    notes: { en: '000 writes the exponent of the cosine as (2i+1)/d. 004 and the paper have 2i/d for both; so has this model.', fr: '000 écrit (2i+1)/d dans l’exposant du cosinus. 004 et l’article ont 2i/d pour les deux ; ce modèle aussi.' } },
  { id: 4, side: 'enc', box: 'self', formula: 'q = x W_{Q} + b_{Q},   k = x W_{K} + b_{K},   v = x W_{V} + b_{V}',
    en: ['Query, key, value', 'Each token asks a question (q), offers a label (k) and holds an answer (v).', 'A soft look-up in a database: the query is compared with every key, and the values are mixed accordingly. Three learned matrices make the vectors, which are cut into heads.'],
    fr: ['Requête, clé, valeur', 'Chaque jeton pose une question (q), offre une étiquette (k) et tient une réponse (v).', 'Comme dans une base de données, en douceur : la requête est comparée à chaque clé, les valeurs sont mélangées selon l’accord. Trois matrices apprises font les vecteurs, coupés en têtes.'],
    notes: { en: '003 calls the query’s matrix W_E; it is W_Q.', fr: '003 appelle W_E la matrice des requêtes ; c’est W_Q.' } },
  { id: 5, side: 'enc', box: 'self', formula: 's_{ij} = q_{i} · k_{j} = Σ_{c} q_{ic} k_{jc}',
    en: ['Scores', 'How well does each question fit each label? A dot product says it.', 'Row i is the word that asks, column j the word that is asked. Channels of equal sign add, the others subtract.'],
    fr: ['Scores', 'À quel point chaque question va-t-elle avec chaque étiquette ? Un produit scalaire le dit.', 'La ligne i est le mot qui demande, la colonne j celui à qui l’on demande. Les canaux de même signe ajoutent, les autres retranchent.'],
    notes: { en: '000 drops the transpose of K; it is Q Kᵀ. In the example of 004 the score 96 is q₁·k₂ on one page and q₂·k₂ on the next two: it is q₁·k₂, the row of the first word.', fr: '000 oublie la transposée de K ; c’est Q Kᵀ. Dans l’exemple de 004, le score 96 est q₁·k₂ sur une page et q₂·k₂ sur les deux suivantes : c’est q₁·k₂, la ligne du premier mot.' } },
  { id: 6, side: 'enc', box: 'self', formula: 's\'_{ij} = s_{ij} / √d_{k}',
    en: ['Scale', 'Dividing by √d_k keeps the scores small, so that softmax does not become all or nothing.', 'A sum of d_k products spreads like √d_k. Unscaled, one word would take nearly all the weight: watch the entropy. In the notes, 112 and 96 over 8 are 14 and 12, and softmax gives 0.88 and 0.12.'],
    fr: ['Échelle', 'Diviser par √d_k garde les scores petits, pour que softmax ne devienne pas tout ou rien.', 'Une somme de d_k produits s’étale comme √d_k. Sans échelle, un mot prendrait presque tout le poids : regardez l’entropie. Dans les notes, 112 et 96 sur 8 font 14 et 12, et softmax donne 0,88 et 0,12.'],
    notes: { en: '001 lost the root: under QKᵀ stands d_k, it is √d_k. 000 divides by N. 003 writes √d with d the model’s width; with h heads it is √(d/h).', fr: '001 a perdu la racine : sous QKᵀ il y a d_k, c’est √d_k. 000 divise par N. 003 écrit √d avec d la largeur du modèle ; avec h têtes c’est √(d/h).' } },
  { id: 7, side: 'enc', box: 'self', formula: 'm_{ij} = s\'_{ij} if allowed, else −∞',
    en: ['Padding mask', 'What is only padding must not be looked at: its scores become −∞.', 'Sentences of a batch have different lengths. The mask is True where one may look; exp(−∞) is 0.'],
    fr: ['Masque de remplissage', 'Ce qui n’est que remplissage ne doit pas être regardé : ses scores deviennent −∞.', 'Les phrases d’un lot n’ont pas la même longueur. Le masque est vrai là où l’on peut regarder ; exp(−∞) vaut 0.'] },
  { id: 8, side: 'enc', box: 'self', formula: 'a_{ij} = exp(m_{ij}) / Σ_{j\'} exp(m_{ij\'})',
    en: ['Softmax', 'Scores become shares: positive, and each row sums to 1.', 'A difference of 1 between two scores is a factor of 2.718 between their shares.'],
    fr: ['Softmax', 'Les scores deviennent des parts : positives, et chaque ligne a pour somme 1.', 'Un écart de 1 entre deux scores est un facteur 2,718 entre leurs parts.'],
    notes: { en: '001 writes exp(e^<q·k>); it is exp(q·k). In 000 the k of the sum below is k_m′, another one for each term, not k_m.', fr: '001 écrit exp(e^<q·k>) ; c’est exp(q·k). Dans 000, le k de la somme du bas est k_m′, un autre à chaque terme, et non k_m.' } },
  { id: 9, side: 'enc', box: 'self', formula: 'c_{i} = Σ_{j} a_{ij} v_{j}',
    en: ['Weighted values', 'Each word takes home a mixture of the values, by its shares.', 'What the words contribute to a channel adds up to exactly the number below.'],
    fr: ['Valeurs pondérées', 'Chaque mot emporte un mélange des valeurs, selon ses parts.', 'Ce que les mots apportent à un canal fait exactement le nombre du bas.'] },
  { id: 10, side: 'enc', box: 'self', formula: 'head_{h} = Attention(Q_{h}, K_{h}, V_{h}),   h = 1 … H',
    en: ['All heads', 'Several heads look at the same sentence, each in its own way.', 'Low entropy: this head points at one word. High entropy: it averages over many.'],
    fr: ['Toutes les têtes', 'Plusieurs têtes regardent la même phrase, chacune à sa façon.', 'Entropie basse : cette tête montre un mot. Entropie haute : elle en moyenne beaucoup.'] },
  { id: 11, side: 'enc', box: 'self', formula: 'y = [c_{1}; …; c_{H}] W_{O} + b_{O} = Σ_{h} c_{h} W_{O}^{h} + b_{O}',
    en: ['Join the heads', 'What the heads found is laid side by side and mixed by W_O.', 'It is a sum over heads, so each head’s share can be measured.'],
    fr: ['Joindre les têtes', 'Ce que les têtes ont trouvé est mis côte à côte et mélangé par W_O.', 'C’est une somme sur les têtes : la part de chacune se mesure.'] },
  { id: 12, side: 'enc', box: 'add1', formula: NORM_FORMULA, notes: NORM_NOTES,
    en: ['Add & norm', 'The token keeps what it was, adds what it learned, and is brought back to a common size.', 'The residual connection adds input and sublayer. Layer norm takes mean and variance over the channels of each token alone (batch norm: over the batch), then scales by γ and shifts by β.'],
    fr: ['Addition et norme', 'Le jeton garde ce qu’il était, ajoute ce qu’il a appris, et revient à une taille commune.', 'La connexion résiduelle ajoute l’entrée et la sous-couche. La norme prend moyenne et variance sur les canaux de chaque jeton seul (la norme par lot : sur le lot), puis multiplie par γ et ajoute β.'] },
  { id: 13, side: 'enc', box: 'ff', formula: 'FFN(x) = max(0, x W_{1} + b_{1}) W_{2} + b_{2}',
    en: ['Feed-forward', 'Each token thinks for itself: widen, switch off, narrow again.', 'The same two matrices at every position; no word looks at another one here.'],
    fr: ['Réseau par position', 'Chaque jeton réfléchit seul : élargir, éteindre, rétrécir.', 'Les deux mêmes matrices à chaque position ; aucun mot n’en regarde un autre ici.'] },
  { id: 14, side: 'enc', box: 'add2', formula: NORM_FORMULA, notes: NORM_NOTES,
    en: ['Add & norm', 'Once more: keep, add, bring back to size.', 'Around the feed-forward network. What comes out is the layer’s result.'],
    fr: ['Addition et norme', 'Encore une fois : garder, ajouter, ramener à la taille.', 'Autour du réseau par position. Ce qui sort est le résultat de la couche.'] },
  { id: 15, side: 'enc', box: 'memory', formula: 'x^{l+1} = Layer(x^{l}),   memory = x^{N}',
    en: ['Up the stack: memory', 'Each layer reads the one below; only the first sees the embedding.', 'The cosine says how much of the input is left in each token. What leaves the last layer is the memory that the decoder reads.'],
    fr: ['En haut : la mémoire', 'Chaque couche lit celle du dessous ; seule la première voit le plongement.', 'Le cosinus dit ce qui reste de l’entrée dans chaque jeton. Ce qui sort de la dernière couche est la mémoire que lit le décodeur.'] },
  { id: 16, side: 'dec', box: 'embed', formula: 'x_{t} = E[y_{t}] · √d_{model} + PE(t)',
    en: ['Shifted right', 'The decoder reads what it has written, one place to the right, after a start mark.', 'At step t it reads t + 1 tokens and predicts the next. In training all steps run at once; here they come one by one.'],
    fr: ['Décalé à droite', 'Le décodeur lit ce qu’il a écrit, une place plus à droite, après une marque de début.', 'À l’étape t il lit t + 1 jetons et prédit le suivant. À l’entraînement toutes les étapes se font d’un coup ; ici elles viennent une à une.'],
    notes: { en: '001 begins with <SOS>, 002 with <EOS>. Both are settings; this model’s own start mark is the first token.', fr: '001 commence par <SOS>, 002 par <EOS>. Les deux sont des réglages ; la marque de ce modèle est le premier jeton.' } },
  { id: 17, side: 'dec', box: 'self', formula: 'a_{ti} = softmax_{i ≤ t}(q_{t} · k_{i} / √d_{k})',
    en: ['Masked self-attention', 'The words written so far look at one another, never at the future.', 'Above the diagonal all is −∞. So no earlier row changes when a word is added, and keys and values of earlier steps are kept instead of computed again.'],
    fr: ['Auto-attention masquée', 'Les mots déjà écrits se regardent entre eux, jamais vers le futur.', 'Au-dessus de la diagonale, tout est −∞. Aucune ligne passée ne change donc quand un mot s’ajoute, et les clés et valeurs passées sont gardées au lieu d’être recalculées.'] },
  { id: 18, side: 'dec', box: 'add1', formula: NORM_FORMULA, notes: NORM_NOTES,
    en: ['Add & norm', 'Keep, add, bring back to size: now in the decoder.', 'Around the masked self-attention.'],
    fr: ['Addition et norme', 'Garder, ajouter, ramener à la taille : cette fois dans le décodeur.', 'Autour de l’auto-attention masquée.'] },
  { id: 19, side: 'dec', box: 'cross', formula: 'c_{t} = Σ_{j} softmax_{j}(q_{t} · k_{j} / √d_{k}) v_{j},   k, v from memory',
    en: ['Cross-attention', 'The word about to be written looks at the source: here translation happens.', 'The query comes from the decoder, keys and values from the encoder’s memory, computed once a sentence. Each step adds one row.'],
    fr: ['Attention croisée', 'Le mot qui va s’écrire regarde la source : c’est ici que l’on traduit.', 'La requête vient du décodeur, les clés et les valeurs de la mémoire de l’encodeur, calculées une fois par phrase. Chaque étape ajoute une ligne.'] },
  { id: 20, side: 'dec', box: 'add2', formula: NORM_FORMULA, notes: NORM_NOTES,
    en: ['Add & norm', 'What was found in the source is added to what is already known.', 'Around the cross-attention.'],
    fr: ['Addition et norme', 'Ce qui fut trouvé dans la source s’ajoute à ce qui est déjà su.', 'Autour de l’attention croisée.'] },
  { id: 21, side: 'dec', box: 'ff', formula: 'FFN(x) = max(0, x W_{1} + b_{1}) W_{2} + b_{2}, then ' + NORM_FORMULA, notes: NORM_NOTES,
    en: ['Feed-forward, add & norm', 'The decoder’s layer ends as the encoder’s does: think alone, add, norm.', 'What leaves the last layer is one vector for the next word.'],
    fr: ['Réseau, addition et norme', 'La couche du décodeur finit comme celle de l’encodeur : réfléchir seul, ajouter, normer.', 'Ce qui sort de la dernière couche est un vecteur pour le mot suivant.'] },
  { id: 22, side: 'out', box: 'linear', formula: 'logit_{w} = h_{t} · E_{w} (+ b_{w})',
    en: ['Linear', 'The vector is compared with every word of the vocabulary.', 'One dot product a word. With tied tables, E_w is the row that embeds the word.'],
    fr: ['Application linéaire', 'Le vecteur est comparé à chaque mot du vocabulaire.', 'Un produit scalaire par mot. Tables liées : E_w est la ligne qui plonge le mot.'] },
  { id: 23, side: 'out', box: 'softmax', formula: 'p_{w} = exp(logit_{w} / τ) / Σ_{w\'} exp(logit_{w\'} / τ)',
    en: ['Softmax over the vocabulary', 'Logits become probabilities of the next word.', 'Temperature τ below 1 sharpens, above 1 flattens. Top-k cuts everything but the k likeliest. Both matter when words are drawn; a beam takes the probabilities as they are.'],
    fr: ['Softmax sur le vocabulaire', 'Les logits deviennent les probabilités du mot suivant.', 'Une température τ sous 1 aiguise, au-dessus de 1 aplatit. Top-k ne garde que les k plus probables. Cela ne compte que si l’on tire les mots ; un faisceau prend les probabilités telles quelles.'] },
  { id: 24, side: 'out', box: 'choose', formula: 'total = total_{parent} + log p,   score = total / penalty(length)',
    en: ['Choose', 'Every hypothesis proposes words; only the best few go on.', 'Log-probabilities add up along a hypothesis. Of all candidates the beam keeps as many as it is wide. Finished ones are ranked by their sum over the length penalty.'],
    fr: ['Choisir', 'Chaque hypothèse propose des mots ; seules les meilleures continuent.', 'Les log-probabilités s’ajoutent le long d’une hypothèse. De tous les candidats, le faisceau garde autant que sa largeur. Les terminées sont classées par leur somme sur la pénalité de longueur.'] },
  { id: 25, side: 'out', box: 'append', formula: 'y ← y + [word],   until word = </s>',
    en: ['Append and loop', 'The chosen word joins the target, and the decoder runs again, until the end mark comes.', 'A length limit guards against one that never stops.'],
    fr: ['Ajouter et recommencer', 'Le mot choisi rejoint la cible, et le décodeur repart, jusqu’à la marque de fin.', 'Une limite de longueur protège d’une boucle sans fin.'] },
  { id: 26, side: 'out', box: 'tree', formula: 'score = Σ_{t} log p(y_{t}) / penalty(length)',
    en: ['Beam tree', 'All hypotheses that were tried: kept, pruned, finished, and the one that won.', 'Each column is a step. Choose a node to see its arithmetic and to move there.'],
    fr: ['Arbre du faisceau', 'Toutes les hypothèses essayées : gardées, élaguées, terminées, et celle qui a gagné.', 'Chaque colonne est une étape. Choisissez un nœud pour voir son calcul et y aller.'] },
  { id: 27, side: 'out', box: 'text', formula: 'pieces → text',
    en: ['Back to text', 'The pieces are joined, and the translation is done.', 'The arcs show which source word each piece looked at most.'],
    fr: ['Retour au texte', 'Les morceaux sont joints, et la traduction est faite.', 'Les arcs montrent quel mot source chaque morceau a le plus regardé.'] },
];
