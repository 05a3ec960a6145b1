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
} as const

export type FsckCheck = keyof typeof fsckChecks

/** One thing that is not as it must be. */
export interface Finding {
  check: FsckCheck
  /** The event, entry, object, hold, key or partition. */
  where: string
  problem: string
}
