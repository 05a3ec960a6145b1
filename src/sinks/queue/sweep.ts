/**
 * The leader's duty for queues: brings back what is due where no worker asks. Lapsed leases, delayed items and lanes that had to
 * wait are looked after by every claim; without a worker it is this one, which takes nothing.
 *
 *   due      at the time that the store's last answer said, but
 *   watched  every 5 s while something of it is held or waits for a time: others claim and settle meanwhile
 *   quiet    once a minute
 *
 * Two leaders at once are harmless: what one has brought back the other does not find.
 */
import type { ClaimReply } from '../../lanes/acts.ts'
import { LaneStore, type StoreGround } from '../../lanes/store.ts'
import { mayPass } from '../../redis/connection.ts'
import { type LaneKeys, queueKeys, routeKeys } from '../../redis/keys.ts'
import { readSubscription } from '../../route/definition.ts'
import type { Randomness } from '../../runtime/clock.ts'
import type { Telemetry } from '../../runtime/telemetry.ts'

export interface SweepContext extends StoreGround {
  namespace: string
  randomness: Randomness
  telemetry: Telemetry
}

const watchedMs = 5_000
const quietMs = 60_000
// A look takes Redis about 2 µs where nothing is held or waits for a time, else about 80: 10,000 queues of which a tenth is in use cost it 2 % of
// its time, and 200 in use no pause above 16 ms.
const looksPerTurn = 200
const betweenTurnsMs = 100
// Each brings back 100 pieces.
const looksInARow = 10

/** As the leader's duties are: see tasks/duty.ts. */
export function sweepDuty(context: SweepContext) {
  const { clock, connection, namespace, telemetry } = context
  const keys = routeKeys(namespace)
  /** Queue → when to look at it, by the monotonic clock. */
  const lookAt = new Map<string, number>()
  let known: string | null | undefined

  /** Queues come and go with the revision of the table. */
  async function follow(): Promise<void> {
    const { redis } = connection
    const revision = await redis.hget(keys.group, 'revision')
    if (revision === known) return
    const stored = Object.entries(await redis.hgetall(keys.subscriptions))
    const names = new Set(stored.filter(([name, text]) => isQueue(name, text)).map(([name]) => name))
    for (const name of lookAt.keys()) if (!names.has(name)) lookAt.delete(name)
    for (const name of names) if (!lookAt.has(name)) lookAt.set(name, 0)
    known = revision
  }

  async function look(name: string): Promise<void> {
    const failed = (error: unknown) => {
      // Redis is away, for all of them.
      if (mayPass(error)) throw error
      telemetry.emit('queue.stuck', { queue: name, problem: String(error) })
      return watchedMs
    }
    const inMs = await sweep(context, name).catch(failed)
    // It goes to the end: who was not looked at for longest comes first.
    lookAt.delete(name)
    lookAt.set(name, clock.monotonicMs() + inMs)
  }

  function dueNow(): string[] {
    const now = clock.monotonicMs()
    const due: string[] = []
    for (const [name, at] of lookAt) {
      if (at <= now) due.push(name)
      if (due.length === looksPerTurn) break
    }
    return due
  }

  return {
    begin() {
      lookAt.clear()
      known = undefined
    },
    hear: () => false,
    async turn(): Promise<number> {
      await follow()
      const due = dueNow()
      await Promise.all(due.map(look))
      if (due.length === looksPerTurn) return betweenTurnsMs
      let next = Number.POSITIVE_INFINITY
      for (const at of lookAt.values()) next = Math.min(next, at)
      return Math.max(0, next - clock.monotonicMs())
    },
  }
}

function isQueue(name: string, text: string): boolean {
  try {
    return readSubscription(name, text).kind === 'queue'
  } catch {
    // Of a newer version, or spoiled: for fsck.
    return false
  }
}

/** Answers in how many ms to look again. */
async function sweep(context: SweepContext, name: string): Promise<number> {
  const store = new LaneStore(context, queueKeys(context.namespace, name))
  if (!(await mayHaveSomething(context, store.keys))) return quietFor(context)
  for (let looks = 1; ; looks += 1) {
    const reply = await store.claim({ token: undefined, n: 0, leaseMs: 0, worker: '', start: '' })
    if (reply.kind !== 'claimed' && reply.kind !== 'paused') return quietMs
    if (!reply.more) return nextLookMs(context, reply)
    if (looks === looksInARow) return 0
  }
}

function nextLookMs(context: SweepContext, reply: Extract<ClaimReply, { more: boolean }>): number {
  // What a paused one has for later it does not say.
  if (reply.kind === 'paused') return watchedMs
  return reply.dueInMs === undefined ? quietFor(context) : Math.min(reply.dueInMs, watchedMs)
}

/** Whether anything there waits for a time, or for a day to be over. Most queues of most namespaces are idle: they cost two small commands. */
async function mayHaveSomething({ connection: { redis } }: SweepContext, keys: LaneKeys): Promise<boolean> {
  const [timed, tracked] = await Promise.all([
    redis.exists(keys.leases, keys.later),
    redis.hexists(keys.store, 'track'),
  ])
  return timed + tracked > 0
}

/** So that many that were found at once are not looked at together for ever. */
const quietFor = ({ randomness }: SweepContext): number => quietMs * (0.8 + 0.2 * randomness.float())
