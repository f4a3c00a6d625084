// The shapes that the server's routes answer with.

/** @typedef {'ok'|'notice'|'warning'|'error'|'critical'} Severity */
/** @typedef {{broker: number, reason: string, age_ms: number|null}} Silent */
/** @typedef {{time_ms: number, text: string, codes: string[]}} Cause */
/** @typedef {{name: string, colour: string|null, production: boolean, incident_ms: number|null}} ClusterName */
/** @typedef {{user: string|null, role: string|null, token: string|null, is_login_needed: boolean, read_only: boolean,
 *   clusters: ClusterName[], is_restricted: boolean, cluster: string, lab: boolean, history: {first_ms: number, last_ms: number}|null,
 *   features: string[], version: string, boot: string}} Session */
/**
 * @template T
 * @typedef {{version: number, event?: number, boot: string, now_ms: number, at_ms: number|null, is_filled: boolean,
 *   problem: string|null, known_ms: number|null, silent: Silent[], data: T|null}} Envelope
 */
/** @typedef {{broker: number, host: string, port: number, rack: string|null, problem: string|null,
 *   answered_ms: number|null, age_ms: number|null, is_controller: boolean, replicas: number|null, leaders: number|null,
 *   out_of_sync: number|null, size_bytes: number|null}} Broker */
/** @typedef {{broker: number, in_sync: boolean, is_leader: boolean, is_silent: boolean, end_offset: number|null,
 *   size_bytes: number|null, lag: number|null}} Replica */
/** @typedef {{topic: string, partition: number, state: string, severity: Severity, leader: number, preferred: number,
 *   leader_epoch: number|null, replicas: number[], isr: number[], osr: number[], elr: number[]|null, offline: number[],
 *   adding: number[]|null, removing: number[]|null, min_isr: number|null, size_bytes: number|null,
 *   start_offset: number|null, high_watermark: number|null, end_offset: number|null, messages: number|null,
 *   exact_ms: number|null, missed_elections: number|null, details: Replica[]|null, cause: Cause|null,
 *   acknowledged?: {user: string, time_ms: number, note: string}|null}} Partition */
/** @typedef {{leader: number, leader_epoch: number, replicas: number[], isr: number[], osr?: number[],
 *   min_isr?: number|null}} Placement */
/** @typedef {{id: string|number, time_ms: number, kind: string, subject: string, topic: string|null,
 *   partition: number|null, broker: number|null, severity: Severity, text: string, cause: string|null,
 *   codes: string[], before: Placement|null, after: Placement|null, count: number,
 *   sample?: {topic: string, partition: number}[]}} Event */
/** @typedef {{severity: Severity, state: string, partitions: number}} Count */
/** @typedef {{cluster_id: string|null, name: string, controller: number, topics: number, partitions: number,
 *   severity: Severity, counts: Count[], isr_below_2: number, without_preferred: number, brokers: Broker[],
 *   worst: Partition[], acknowledged: number, changes: Event[]}} Overview */
/** @typedef {{topic: string, topic_id: string|null, is_internal: boolean, partitions: number, replication: number,
 *   min_isr: number|null, severity: Severity, state: string, out_of_sync: number, leaderless: number,
 *   size_bytes: number|null, messages: number|null, rate: number|null, groups: number|null,
 *   lag: number|null}} TopicRow */
/** @typedef {{cleanup: string[]|null, retention_ms: number|null, retention_bytes: number|null}} Policy -1 is no limit */
/** @typedef {{name: string, value: string|null, origin: string, is_sensitive: boolean, is_read_only: boolean,
 *   type: string|null, doc: string|null, default: string|null}} Config */
/** @typedef {{topic: string, topic_id: string|null, is_internal: boolean, replication: number, min_isr: number|null,
 *   severity: Severity, partitions: Partition[], total: number, size_bytes: number|null, messages: number|null, groups: {group: string, lag: number|null,
 *   members: number|null}[]|null, configs: Config[]|null, configs_problem: string|null}} Topic */
/** @typedef {{time_ms: number, leader: number, leader_epoch: number|null, isr: number[], replicas: number[]|null,
 *   cause: string|null, codes?: string[], is_change?: boolean}} Lane */
/** @typedef {{broker: number, directory: string|null, size_bytes: number|null, end_offset: number|null,
 *   is_future: boolean, error: string|null}} ReplicaDirectory */
/** @typedef {{producer_id: number, epoch: number, last_sequence: number|null, last_ms: number|null,
 *   open_txn_from: number|null}} Producer */
/** @typedef {Partition & {explanation: string[]|null, lanes: Lane[]|null, lanes_from_ms: number|null,
 *   lanes_gap: boolean, directories: ReplicaDirectory[]|null, producers: Producer[]|null,
 *   producers_problem: string|null}} PartitionPage */
/** @typedef {{controller: number, brokers: Broker[]}} Brokers */
/** @typedef {Broker & {by_severity: Record<Severity, number>, hosted: {topic: string, partition: number,
 *   is_leader: boolean, in_sync: boolean, size_bytes: number|null, lag: number|null, severity: Severity}[],
 *   replicas_total: number, directories: {path: string, size_bytes: number|null, replicas: number|null,
 *   total_bytes: number|null, usable_bytes: number|null, error: string|null}[]|null, directories_problem: string|null,
 *   configs: Config[]|null, configs_problem: string|null}} BrokerPage */
/** @typedef {{node: number, directory_id: string|null, end_offset: number|null, lag: number|null,
 *   last_fetch_ms: number|null, last_caught_up_ms: number|null}} Voter */
/** @typedef {{kind: string, leader: number, leader_epoch: number|null, high_watermark: number|null, voters: Voter[],
 *   observers: Voter[], problem: string|null}} Quorum */
/** @typedef {{events: Event[], total: number, oldest_ms: number|null, is_cut: boolean, kinds: Record<string, number>, causes: Record<string, number>,
 *   minutes: [number, number, number][]}} Timeline */
/** @typedef {{first_ms: number, last_ms: number, recording: boolean, problem: string|null,
 *   minutes: [number, number, number][]}} History */
/** @typedef {{group: string, state: string, protocol: string|null, members: number|null, topics: number|null,
 *   lag: number|null, lag_s: number|null, since_ms: number|null, level_ms: number|null, coordinator: number|null}} GroupRow */
/** @typedef {{topic: string, partition: number, committed: number|null, end_offset: number|null, lag: number|null,
 *   lag_s: number|null, member: string|null}} GroupPartition */
/** @typedef {{group: string, state: string, protocol: string|null, coordinator: number|null,
 *   members: {member: string, client: string, host: string, instance: string|null,
 *   assignments: {topic: string, partition: number}[]}[], assigned: {topic: string, partitions: number}[], partitions: GroupPartition[], lag: number|null,
 *   lag_s: number|null, since_ms: number|null, level_ms: number|null, problem: string|null}} GroupPage */
/** @typedef {{kind: string, text: string|null, size: number, is_cut: boolean, schema?: {id: number, name: string}|null,
 *   is_masked?: boolean, problem?: string|null}} Value */
/** @typedef {{partition: number, offset: number, time_ms: number|null, time_type: string, key: Value|null,
 *   value: Value|null, headers: {name: string, value: Value|null}[], headers_left?: number, size: number}} RecordRow */
/** @typedef {{records: RecordRow[], searched: {records: number, bytes: number, skipped: number, left: number, ms: number, filter_failures: number},
 *   is_complete: boolean, stopped: string|null, next?: Record<string, number>|null, before?: Record<string, number>|null,
 *   filter_failure: string|null,
 *   problems: {partition: number, text: string}[]}} Messages */
/** @typedef {{broker: number, copied_bytes: number|null, left_bytes: number|null, rate: number|null,
 *   problem: string|null}} MoveTarget */
/** @typedef {{topic: string, partition: number, replicas: number[], adding: number[], removing: number[], leader: number,
 *   size_bytes: number|null, targets: MoveTarget[], left_bytes: number|null, rate: number|null,
 *   end_ms: number|null}} Move */
/** @typedef {{topic: string, partition: number, broker: number, from: string|null, to: string, size_bytes: number,
 *   copied_bytes: number, left_bytes: number|null, rate: number|null, end_ms: number|null}} DirectoryMove */
/** @typedef {{moves: DirectoryMove[], total: number, left_bytes: number|null, rate: number|null,
 *   problems: {broker: number, text: string}[]}} DirectoryMoves */
/** @typedef {{broker: number, leader_rate: number|null, follower_rate: number|null, directory_rate: number|null,
 *   problem: string|null}} MoveLimits */
/** @typedef {{moves: Move[], total: number, left_bytes: number|null, rate: number|null, end_ms: number|null,
 *   throttles: MoveLimits[], directories: DirectoryMoves}} Moves */
/** @typedef {{topic: string, partition: number, leader: [number, number], replicas: [number[], number[]],
 *   isr: [number[], number[]], severity: [Severity, Severity], size_bytes: [number|null, number|null]}} Changed */
/** @typedef {{time_ms: number, is_now: boolean, problem: string|null}} Moment */
/** @typedef {{first: Moment, second: Moment, counts: {severity: Severity, first: number, second: number}[],
 *   controller: [number, number], brokers: {broker: number, first: string, second: string}[], created: string[],
 *   deleted: string[], recreated: string[], partitions: Changed[], changed: number, same: number}} Comparison */
/** @typedef {{cluster: string, user: string, note: string, severity: Severity, since_ms: number, until_ms: number,
 *   worst: (Partition & {explanation: string[]})[]}} Incident */
/** @typedef {{is_embedded: boolean, reason: string|null, brokers: {broker: number, state: string,
 *   pid: number|null}[]}} Lab */
/** @typedef {{from: number, to: number, partitions: number, out_of_sync: number, lag: number|null, state: string,
 *   report: string|null}} Link */
/** @typedef {{kind: string, broker: number, begin_ms: number, end_ms: number|null, text: string}} Report */
/** @typedef {{brokers: number[], brokers_total: number, cells: Link[], reports: Report[], has_reports: boolean}} Links */
/** @typedef {{resource: string, name: string, pattern: string, principal: string, host: string, operation: string,
 *   permission: string}} Acl */
/** @typedef {{user: string, mechanism: string, iterations: number}} ScramUser */
/** @typedef {{entity: Record<string, string|null>, quotas: Record<string, number>}} Quota */

export {};
