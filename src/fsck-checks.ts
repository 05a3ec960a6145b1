/** Everything that fsck looks for. The names are stable: scripts may rely on them. docs/fsck.md is held to this table. */

export const fsckChecks = {
  'entry-ids':
    'Entry ids are `<seq>-0`; the events of an entry fit between the id before it and its own; it has two fields, with as many prevs as envelopes.',
  envelopes:
    'Every envelope is a header line that begins with a valid type and tenant and whose fields are valid, then data that is JSON.',
  partition: 'Every object lies in the partition that its name hashes to.',
  chain:
    "Every event's prev is the object's event before it; the first kept one's is null or trimmed: no hole, no fork.",
  heads: 'Every object with a kept event has a head that is its last event; every other head is of a trimmed event.',
  meta: 'last, trimmed, events and bytes of a partition agree with its log.',
  keys: 'Every key of the namespace has an owner in docs/keys.md, the documented type, and a time to live if and only if it should.',
  holds: 'No hold is above the end of its partition.',
  subscriptions:
    'Every subscription can be read; its last change is the one that routers hear of; none is registered and being removed at once.',
  cursors:
    'Every cursor of routing is of a partition that there is, and not above its end; an own one belongs to a subscription, under its revision.',
  'queue-store':
    "Every registered queue has a store: that of its subscription, not newer than its definition, and with nothing from beyond the log's end.",
  'queue-keys':
    'Every key of a queue belongs to a registered one, to a lane that has a record, to a lease that there is.',
  'queue-items':
    'Every item is well formed, lies where its own text says, and in exactly one place: waiting, behind another of its object, for later, held, parked or dead.',
  'queue-lanes':
    'Every lane with items has a record, and it counts what the lane has; at every place in use is an item.',
  'queue-counters':
    'What entered a queue is in it, or counted as gone; the counters are the sums over its lanes, and over its dead letters; as many places are in use as items wait or are held.',
  'queue-turns':
    'In line are exactly the lanes that have something waiting, a weight, no time to wait for, and hold less than they may.',
  'queue-order':
    'Of an object of an ordered queue exactly one item waits, is held, to be tried again or parked; the others lie behind it without a gap.',
  'queue-later':
    'Everything that waits for a time is there, and due at some time; a lane that waits is due when it says.',
  'queue-leases': 'Every lease has an end, a holder and items that are there.',
  'queue-dead': 'Every dead letter can be read, and stands in their order at its time.',
  'queue-remembered': 'Everything that a queue remembers of its senders is forgotten at some time.',
  'webhook-store':
    "Every registered webhook has a record, in its shard: that of its subscription, not newer than its definition, and with nothing from beyond the log's end.",
  'webhook-batches':
    'Every open batch of a webhook has a deadline, and events as it counts them; all events that a webhook counts are in its batches, and it counts the batches that were tried in vain.',
  'webhook-keys':
    'Every key of a shard belongs to a webhook that is registered and lies there; a shard without one has none.',
  operations:
    'Every operation of a tracked queue can be read and says of its item what the queue says; its times are in order; ended, it is forgotten at some time.',
  'operation-index': 'Every operation with a key stands in the index of its object, and nothing else does.',
  'operation-counts':
    'No more operations ended in the last 24 hours than ever; as many are kept as wait to be forgotten.',
} as const

export type FsckCheck = keyof typeof fsckChecks

/** One thing that is not as it must be. */
export interface Finding {
  check: FsckCheck
  /** The event, entry, object, hold, key, partition, subscription, queue, lane, lease, item or operation. */
  where: string
  problem: string
}

/** What two looks agree on, as the second one says it first; one finding for each place and check. */
export async function* lookTwice(look: () => Promise<Finding[]>): AsyncGenerator<Finding, void, undefined> {
  const first = await look()
  if (first.length === 0) return
  const again = new Map((await look()).reverse().map((finding) => [keyOf(finding), finding]))
  for (const key of new Set(first.map(keyOf))) {
    const finding = again.get(key)
    if (finding) yield finding
  }
}

const keyOf = ({ check, where }: Finding): string => `${check} ${where}`
