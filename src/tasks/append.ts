/**
 * The leader's duty for delayed events: appends those that are due to the log, in the order in which they are.
 *
 * The script that appends one also removes it, and stores nothing of one that is gone. So two leaders at once, or one that
 * dies anywhere, neither double nor lose it, and nothing needs to be repeated here: the next look finds what is left.
 */
import { kindOf, readEnvelope } from '../envelope.ts'
import { separator } from '../log/entry.ts'
import type { Namespace } from '../log/namespace.ts'
import { hintKinds } from '../publish/lane.ts'
import { type DueReply, dueScript, publishScript } from '../publish/scripts.ts'
import type { Connection } from '../redis/connection.ts'
import { runScript, runScripts, writeArg } from '../redis/script.ts'
import type { Clock } from '../runtime/clock.ts'
import type { LoopContext } from '../runtime/loop.ts'
import { type Duty, sweepMs } from './duty.ts'

export interface AppendContext extends LoopContext {
  network: Clock
  namespace: Namespace
  reads: Connection
  writes: Connection
  /** The highest seq of a partition that this process has seen; `saw` tells it of a higher one. */
  floorOf(partition: number): number
  saw(partition: number, seq: number): void
  /** '' or the prefix of the live channel. */
  liveChannelPrefix: string
}

// As much as one flush takes.
const maxEvents = 256
const maxBytes = 256 * 1024
// A look at all partitions makes up for lost hints: one command for each, at most 1.6 in a second.
const sweepMsPerPartition = 625
const never = Number.POSITIVE_INFINITY

export function appendDuty(context: AppendContext): Duty {
  const { clock, network, namespace } = context
  const all = namespace.partitions.map((_, partition) => partition)
  const everyMs = Math.max(sweepMs, all.length * sweepMsPerPartition)
  /** When to look at a partition, by the monotonic clock. */
  const lookAt = new Map<number, number>()
  let sweepAt = 0
  return {
    begin() {
      sweepAt = 0
    },
    hear(message) {
      const partition = /^\d+$/.test(message) ? Number(message) : -1
      if (partition < 0 || partition >= all.length) return false
      lookAt.set(partition, 0)
      return true
    },
    async turn() {
      const now = clock.monotonicMs()
      const isSweep = network.monotonicMs() >= sweepAt
      const looked = all.filter((partition) => isSweep || (lookAt.get(partition) ?? never) <= now)
      // Before the look: a hint that comes meanwhile stays.
      for (const partition of looked) lookAt.delete(partition)
      try {
        for (const [partition, nextAt] of await appendDue(context, looked))
          lookAt.set(partition, Math.min(nextAt, lookAt.get(partition) ?? never))
      } catch (error) {
        for (const partition of looked) lookAt.set(partition, 0)
        throw error
      }
      // A little early: the loop that sweeps does not come at the exact time.
      if (isSweep) sweepAt = network.monotonicMs() + 0.8 * everyMs
      return Math.max(0, Math.min(...lookAt.values()) - clock.monotonicMs())
    },
  }
}

/** Answers for each partition when there is more, by the monotonic clock. */
async function appendDue(context: AppendContext, looked: readonly number[]): Promise<Map<number, number>> {
  const found = await readDue(context, looked)
  const nextAt = new Map<number, number>()
  const now = context.clock.monotonicMs()
  for (const [i, partition] of looked.entries()) {
    const { events, moreInMs } = found[i]!
    if (events.length > 0) await append(context, partition, events)
    nextAt.set(partition, moreInMs === undefined ? never : now + moreInMs)
  }
  return nextAt
}

function readDue({ namespace, reads, clock }: AppendContext, looked: readonly number[]): Promise<DueReply[]> {
  const inputs = looked.map((partition) => ({
    keys: namespace.partitions[partition]!,
    nowUs: clock.serverUs?.(),
    maxEvents,
    maxBytes,
  }))
  return runScripts(reads.redis, dueScript, inputs)
}

async function append(context: AppendContext, partition: number, events: DueReply['events']): Promise<void> {
  const { namespace, writes, floorOf, saw, liveChannelPrefix, telemetry, clock } = context
  const reply = await runScript(writes.redis, publishScript, {
    keys: namespace.partitions[partition]!,
    // Not remembered: what is sent twice finds its events gone.
    process: '',
    n: 0,
    floor: floorOf(partition),
    nowUs: clock.serverUs?.(),
    kinds: hintKinds(new Set(events.map(({ envelope }) => kindText(envelope)))),
    live: liveChannelPrefix === '' ? '' : `${partition} ${liveChannelPrefix}`,
    options: JSON.stringify(events.map(({ number }, i) => [i + 1, 1, { delayed: number }])),
    records: events.map(({ envelope }) => separator + envelope).join(''),
    objects: { text: events.map(({ envelope }) => writeArg(objectOf(envelope))).join(''), count: events.length },
  })
  if (reply.kind !== 'stored') throw new Error(`delayed events of partition ${partition} were ${reply.kind}`)
  const stored = events.length - reply.exceptions.length
  if (stored > 0) saw(partition, reply.last)
  telemetry.emit('delayed.appended', { partition, events: stored, gone: reply.exceptions.length })
}

function kindText(envelope: string): string {
  const { tenant, type } = kindOf(envelope)!
  return `${tenant}:${type}`
}

function objectOf(envelope: string): string {
  const { tenant, key } = readEnvelope(envelope).header
  return key === undefined ? '' : `${tenant}/${key}`
}
