/**
 * Waiting for an operation's end, in any process.
 *
 * It looks when it hears of the end, and once a second, because hints get lost. A Redis that is away is waited for as long as there is time.
 */
import { type Duration, durationParameter } from '../duration.ts'
import { BusbarError } from '../errors.ts'
import type { LogSource } from '../log/view.ts'
import type { Hints } from '../redis/hints.ts'
import { operationKeys } from '../redis/keys.ts'
import type { Subscriptions } from '../route/subscriptions.ts'
import type { Clock } from '../runtime/clock.ts'
import { checkKnown } from '../unknown-name.ts'
import { type Operation, type OperationPlace, placeOf } from './operation.ts'
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
  find(place: OperationPlace, timeoutMs: number): Promise<Operation | undefined>
  missing(place: OperationPlace): Promise<BusbarError>
}

const known = new Set<keyof WaitOptions>(['timeout', 'signal'])
const defaultMs = 30_000
const lookMs = 1_000
// For a first answer, however short the time is.
const leastMs = 500

export async function waitFor(id: string, options: WaitOptions, ground: WaitGround): Promise<Operation> {
  checkKnown(options, known)
  const { timeout = defaultMs, signal } = options
  const place = placeOf(id)
  const { network } = ground
  const end = endOfWaiting(network, durationParameter('timeout', timeout), signal)
  let wake: () => void = () => undefined
  const listening = listen(ground, place, end.leftMs(), () => wake())
  let last: Seen | undefined
  try {
    await end.orBefore(listening)
    for (;;) {
      const woken = new Promise<void>((resolve) => {
        wake = resolve
      })
      last = await look(ground, place, last, end)
      if (last && (isEnd(last.operation.status) || end.hasCome)) return last.operation
      const timer = network.after(lookMs, () => wake())
      await end.orBefore(woken)
      timer.cancel()
      wake()
    }
  } finally {
    end.forget()
    listening.then(
      (unlisten) => unlisten(),
      () => undefined,
    )
  }
}

/** `born`: of its queue, whose name another one may have by now. */
interface Seen {
  operation: Operation
  born: number | undefined
}

interface End {
  readonly hasCome: boolean
  leftMs(): number
  /** Its answer, or undefined when the end comes before. */
  orBefore<T>(work: Promise<T>): Promise<T | undefined>
  forget(): void
}

/** When the time is over, or the signal fires. */
function endOfWaiting(network: Clock, timeoutMs: number, signal: AbortSignal | undefined): End {
  const until = network.monotonicMs() + timeoutMs
  const waiting = new Set<() => void>()
  let hasCome = false
  const come = () => {
    hasCome = true
    for (const tell of waiting) tell()
  }
  const timer = network.after(timeoutMs, come)
  signal?.addEventListener('abort', come)
  if (signal?.aborted) come()
  return {
    get hasCome() {
      return hasCome
    },
    leftMs: () => (hasCome ? 0 : Math.max(0, until - network.monotonicMs())),
    orBefore: (work) =>
      new Promise((resolve, reject) => {
        const tell = () => resolve(undefined)
        waiting.add(tell)
        work.then(resolve, reject).finally(() => waiting.delete(tell))
        if (hasCome) tell()
      }),
    forget() {
      timer.cancel()
      signal?.removeEventListener('abort', come)
    },
  }
}

/** Without Redis nothing is heard: then it is looked. */
async function listen({ source, hints }: WaitGround, { queue, name }: OperationPlace, ms: number, heard: () => void) {
  const deaf = () => undefined
  try {
    const channel = await source.read(
      async (_, namespace) => operationKeys(namespace.name, queue).opsWake,
      Math.max(leastMs, ms),
    )
    return await (await hints()).listen(channel, (names) => names.split(' ').includes(name) && heard())
  } catch (error) {
    if (isAway(error)) return deaf
    throw error
  }
}

const isAway = (error: unknown): boolean => error instanceof BusbarError && error.code === 'REDIS_UNAVAILABLE'

/** What it is now, or what it was while Redis is away; undefined when nothing is known yet. */
async function look(
  ground: WaitGround,
  place: OperationPlace,
  last: Seen | undefined,
  end: End,
): Promise<Seen | undefined> {
  try {
    const asking = seenNow(ground, place, last, Math.max(leastMs, end.leftMs()))
    const answer = (await end.orBefore(asking)) ?? last ?? (await soon(ground.network, asking))
    if (answer === 'gone') throw await ground.missing(place)
    return answer
  } catch (error) {
    if (!isAway(error) || (end.hasCome && !last)) throw error
    return last
  }
}

async function seenNow(
  { find, subscriptions }: WaitGround,
  place: OperationPlace,
  last: Seen | undefined,
  timeoutMs: number,
): Promise<Seen | 'gone'> {
  // Before the operation: the queue that has it may be an older one then, and never a newer one.
  const before = last ? undefined : await subscriptions.stored(place.queue)
  const operation = await find(place, timeoutMs)
  if (operation) return { operation, born: last?.born ?? before?.born }
  const queue = last && (await subscriptions.stored(place.queue))
  // Where only failures are kept, what was there and is gone has succeeded, unless its queue went with it.
  const hasSucceeded = last && queue?.options.track === 'failures' && queue.born === last.born
  return hasSucceeded ? { ...last, operation: { ...last.operation, status: 'succeeded', error: null } } : 'gone'
}

/** At the end of the time, of something that nothing is known of yet. */
function soon<T>(network: Clock, answer: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const problem = `no answer within ${leastMs} ms`
    const timer = network.after(leastMs, () => reject(BusbarError.of('REDIS_UNAVAILABLE', { problem })))
    answer.then(resolve, reject).finally(() => timer.cancel())
  })
}
