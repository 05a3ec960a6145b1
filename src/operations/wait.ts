/**
 * Waiting for an operation's end, in any process.
 *
 * It looks when it hears of the end, and once a second, because hints get lost. A Redis that is away is waited for as long as there is time.
 */
import { type Duration, durationOf } from '../duration.ts'
import { BusbarError } from '../errors.ts'
import type { LogSource } from '../log/view.ts'
import type { Hints } from '../redis/hints.ts'
import { operationKeys } from '../redis/keys.ts'
import type { Subscriptions } from '../route/subscriptions.ts'
import type { Clock } from '../runtime/clock.ts'
import { checkKnown } from '../unknown-name.ts'
import { notFound, type Operation, type OperationPlace, placeOf } from './operation.ts'
import { isEnd } from './transitions.ts'

export interface WaitOptions {
  /** Default 30s. */
  timeout?: Duration
  /** Ends the waiting: it answers what the operation is then. */
  signal?: AbortSignal
}

export interface WaitGround {
  source: LogSource
  subscriptions: Subscriptions
  hints(): Promise<Hints>
  network: Clock
  find(place: OperationPlace): Promise<Operation | undefined>
}

const known = new Set<keyof WaitOptions>(['timeout', 'signal'])
const defaultMs = 30_000
const lookMs = 1_000

export async function waitFor(id: string, options: WaitOptions, ground: WaitGround): Promise<Operation> {
  checkKnown(options, known)
  const { timeout = defaultMs, signal } = options
  const place = placeOf(id)
  const { network } = ground
  const until = network.monotonicMs() + durationOf('timeout', timeout)
  const leftMs = () => Math.max(0, until - network.monotonicMs())
  let wake: () => void = () => undefined
  const awake = () => wake()
  const unlisten = await listen(ground, place, awake)
  signal?.addEventListener('abort', awake)
  let last: Operation | undefined
  try {
    for (;;) {
      const woken = new Promise<void>((resolve) => {
        wake = resolve
      })
      last = await look(ground, id, place, last, leftMs)
      if (last && (isEnd(last.status) || leftMs() === 0 || signal?.aborted)) return last
      const timer = network.after(Math.min(leftMs(), lookMs), awake)
      await woken
      timer.cancel()
    }
  } finally {
    unlisten()
    signal?.removeEventListener('abort', awake)
  }
}

async function listen({ source, hints }: WaitGround, { queue, name }: OperationPlace, heard: () => void) {
  const channel = await source.read(async (_, namespace) => operationKeys(namespace.name, queue).opsWake)
  return (await hints()).listen(channel, (names) => names.split(' ').includes(name) && heard())
}

/** What it is now, or what it was while Redis is away; undefined when nothing is known yet. */
async function look(
  ground: WaitGround,
  id: string,
  place: OperationPlace,
  last: Operation | undefined,
  leftMs: () => number,
): Promise<Operation | undefined> {
  try {
    const found = (await ground.find(place)) ?? (last && (await succeededUnseen(ground, last)))
    if (!found) throw notFound(id)
    return found
  } catch (error) {
    if (!(error instanceof BusbarError) || error.code !== 'REDIS_UNAVAILABLE') throw error
    if (leftMs() === 0 && !last) throw error
    return last
  }
}

/** Where only failures are kept, what was there and is gone has succeeded. */
async function succeededUnseen({ subscriptions }: WaitGround, last: Operation): Promise<Operation | undefined> {
  const queue = await subscriptions.find(last.queue)
  return queue?.options.track === 'failures' ? { ...last, status: 'succeeded', error: null } : undefined
}
