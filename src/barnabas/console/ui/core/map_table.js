// The replica map's data: columns of all partitions, as the server sends them in binary, and their changes.

export const NO_LEADER = 255;

/** @typedef {{version: number, boot: string, layout: number, count: number, width: number, now_ms: number,
 *   at_ms: number|null, problem: string|null, is_filled: boolean, silent: {broker: number, reason: string, age_ms: number|null}[],
 *   known_ms: number|null, controller: number, brokers: {broker: number, rack: string|null, problem: string|null}[],
 *   assignments: number[][], topics: {names: string[], counts: number[], holes?: Record<string, number[]>}|null,
 *   columns: Record<string, {type: 'u8'|'u16'|'u32', offset: number, length: number}>}} MapHeader */
/** @typedef {Uint8Array|Uint16Array|Uint32Array} Column */
/** @typedef {{positions: Uint32Array, places: Uint8Array, filled: number}} Held */

const TYPES = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array };

export class MapTable {
  /**
   * @param {ArrayBuffer} bytes
   * @param {MapTable|null} before the table whose topics are used if the layout is the same
   */
  constructor(bytes, before) {
    const length = new DataView(bytes).getUint32(0, true);
    /** @type {MapHeader} */
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length)));
    this.header = header;
    this.topics = header.topics ?? before?.topics ?? { names: [], counts: [] };
    const column = (/** @type {string} */ name) => {
      const found = header.columns[name];
      if (!found) return new Uint8Array(0);
      return new TYPES[found.type](bytes, found.offset, found.length);
    };
    /** @type {Column} */
    this.assignment = column('assignment');
    /** @type {Column} */
    this.severity = column('severity');
    /** @type {Column} */
    this.leader = column('leader');
    /** @type {Column} */
    this.isr = column('isr');
    /** @type {Column} */
    this.size = column('size');
    /** @type {Column} */
    this.lag = column('lag');
    this.silent = new Set(header.silent.map((each) => each.broker));
    this.starts = starts(this.topics.counts);
    /** @type {Map<number, Held>|null} */
    this.held = null;
    /** Which positions a supposed state changes; null for the present one. @type {Uint8Array|null} */
    this.supposed = null;
  }

  get count() {
    return this.header.count;
  }

  /** Returns whether the table has what the picture needs. */
  get isFilled() {
    return this.header.is_filled && this.assignment.length === this.count;
  }

  /** @param {number} position */
  replicasOf(position) {
    return this.header.assignments[this.assignment[position] ?? 0] ?? [];
  }

  /** @param {number} position */
  nameOf(position) {
    let [low, high] = [0, this.starts.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((this.starts[middle] ?? 0) <= position) low = middle;
      else high = middle - 1;
    }
    const topic = this.topics.names[low] ?? '';
    const place = position - (this.starts[low] ?? 0);
    return { topic, partition: this.topics.holes?.[topic]?.[place] ?? place };
  }

  /** @param {number} position */
  leaderOf(position) {
    const place = this.leader[position] ?? NO_LEADER;
    return place === NO_LEADER ? -1 : (this.replicasOf(position)[place] ?? -1);
  }

  /**
   * The state of one replica: 0 in sync, 1 leader, 2 out of sync, 3 broker silent, 4 the partition has no leader.
   * @param {number} position
   * @param {number} place
   * @param {number} broker
   */
  stateOf(position, place, broker) {
    if (this.silent.has(broker)) return 3;
    if (this.leader[position] === NO_LEADER) return 4;
    if (this.leader[position] === place) return 1;
    return ((this.isr[position] ?? 0) >> place) & 1 ? 0 : 2;
  }

  /** Returns each broker's replicas, in the order of topics: positions, and places in the lists of replicas. */
  byBroker() {
    this.held ??= this.arranged();
    return this.held;
  }

  arranged() {
    const { assignments } = this.header;
    const sizes = new Map(this.header.brokers.map((each) => [each.broker, 0]));
    const shares = new Uint32Array(assignments.length);
    for (let position = 0; position < this.count; position += 1) {
      const index = this.assignment[position] ?? 0;
      shares[index] = (shares[index] ?? 0) + 1;
    }
    assignments.forEach((list, index) => {
      for (const broker of list) sizes.set(broker, (sizes.get(broker) ?? 0) + (shares[index] ?? 0));
    });
    /** @type {Map<number, Held>} */
    const found = new Map();
    for (const [broker, size] of sizes) {
      found.set(broker, { positions: new Uint32Array(size), places: new Uint8Array(size), filled: 0 });
    }
    const held = assignments.map((list) => list.map((broker) => found.get(broker)));
    for (let position = 0; position < this.count; position += 1) {
      const list = held[this.assignment[position] ?? 0] ?? [];
      for (let place = 0; place < list.length; place += 1) {
        const of = list[place];
        if (!of) continue;
        of.positions[of.filled] = position;
        of.places[of.filled] = place;
        of.filled += 1;
      }
    }
    return found;
  }

  /**
   * Shows a supposed state instead of the present one: [partition, severity, leader, ISR, replicas] by topic. Returns
   * which positions it changes.
   * @param {{topic: string, partitions: [number, number, number, number[], number[]][]}[]} states
   * @param {number[]} lost brokers that would not run
   */
  suppose(states, lost) {
    const changed = new Uint8Array(this.count);
    const { assignments } = this.header;
    const numbers = new Map(assignments.map((list, index) => [list.join(), index]));
    const places = new Map(this.topics.names.map((name, index) => [name, index]));
    this.assignment = Uint32Array.from(this.assignment);
    this.isr = Uint32Array.from(this.isr);
    for (const { topic, partitions } of states) {
      const holes = this.topics.holes?.[topic];
      const start = this.starts[places.get(topic) ?? -1];
      if (start === undefined) continue;
      for (const [partition, severity, leader, isr, replicas] of partitions) {
        const place = holes ? holes.indexOf(partition) : partition;
        // The topic has got partitions since the map was read.
        if (place < 0 || place >= (this.topics.counts[places.get(topic) ?? -1] ?? 0)) continue;
        const position = start + place;
        const key = replicas.join();
        if (!numbers.has(key)) numbers.set(key, assignments.push(replicas) - 1);
        this.assignment[position] = numbers.get(key) ?? 0;
        this.severity[position] = severity;
        this.leader[position] = leader < 0 ? NO_LEADER : replicas.indexOf(leader);
        this.isr[position] = replicas.reduce((bits, broker, place) => bits | (isr.includes(broker) ? 1 << place : 0), 0);
        changed[position] = 1;
      }
    }
    for (const broker of lost) this.silent.add(broker);
    this.held = null;
    return changed;
  }

  /**
   * Applies a change that the live stream sent. Returns false if it is of another layout.
   * @param {{version: number, layout: number, positions: string, severity: string, leader: string, isr: string,
   *   controller: number, assignment?: string,
   *   silent?: {broker: number, reason: string, age_ms: number|null}[]}} cells
   */
  apply(cells) {
    if (cells.layout !== this.header.layout) return false;
    const positions = new Uint32Array(decoded(cells.positions));
    const put = (/** @type {Column} */ column, /** @type {string|undefined} */ text) => {
      if (!text) return;
      const Type = /** @type {Uint8ArrayConstructor} */ (column.constructor);
      const values = new Type(decoded(text));
      for (let index = 0; index < positions.length; index += 1) column[positions[index] ?? 0] = values[index] ?? 0;
    };
    put(this.severity, cells.severity);
    put(this.leader, cells.leader);
    put(this.isr, cells.isr);
    if (cells.assignment) {
      const before = this.assignment.slice();
      put(this.assignment, cells.assignment);
      if (positions.some((each) => before[each] !== this.assignment[each])) this.held = null;
    }
    if (cells.silent) this.silent = new Set(cells.silent.map((each) => each.broker));
    this.header.version = cells.version;
    this.header.controller = cells.controller;
    return true;
  }
}

/** @param {number[]} counts */
function starts(counts) {
  const found = new Uint32Array(counts.length);
  let sum = 0;
  counts.forEach((each, index) => {
    found[index] = sum;
    sum += each;
  });
  return found;
}

/** @param {string} text base64 */
function decoded(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let index = 0; index < raw.length; index += 1) bytes[index] = raw.charCodeAt(index);
  return bytes.buffer;
}
