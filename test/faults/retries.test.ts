/** The caller who got no answer asks again with its idempotency key, from wherever it is: exactly one event. */
import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import type { Duration } from '../../src/duration.ts'
import type { Published } from '../../src/publish/call.ts'
import { eventually } from '../support/eventually.ts'
import { type Child, spawnNode } from '../support/process.ts'
import type { Command, Decision } from '../support/proxy.ts'
import { type FaultyPlace, faultyPlace, isPublish, nextPublish } from './storm.ts'

interface Wanted {
  type: string
  data: number
  key?: string
  expectPrev?: null
  idempotencyKey: string
}

const optionsOf = ({ type: _, data: __, ...options }: Wanted) => options

/** With and without key, with and without expectPrev. */
function wanted(n: number): Wanted {
  const key = n % 4 === 0 ? {} : { key: `order:${n}` }
  const expectPrev = n % 4 === 1 ? { expectPrev: null } : {}
  return { type: 'order.paid', data: n, ...key, ...expectPrev, idempotencyKey: `pay-${n}` }
}

function publisher({ proxy, namespace }: FaultyPlace, env: Record<string, string> = {}): Child {
  return spawnNode('fault-publisher.mjs', { args: [proxy.url, namespace, '20s'], env })
}

async function publishIn(child: Child, calls: readonly Wanted[]): Promise<Published[]> {
  child.send(JSON.stringify(calls.map((call) => [call.type, call.data, optionsOf(call)])))
  return JSON.parse((await child.waitForLine(/^answers /, { timeoutMs: 25_000 })).slice('answers '.length))
}

/** Every event is there once, and these are the answers of those who asked again, first or second. */
async function expectDuplicatesOf(
  place: FaultyPlace,
  calls: readonly Wanted[],
  answers: readonly Published[],
  isSecond = calls.map(() => true),
) {
  const paid = (await place.log()).filter(({ type }) => type === 'order.paid')
  const byNumber = new Map(paid.map((event) => [Number(event.json), event]))
  expect(byNumber.size).toBe(paid.length)
  const stored = calls.map(({ data }) => byNumber.get(data))
  expect(answers).toEqual(
    stored.map((event, i) => ({ id: event?.id, seq: event?.seq, prev: event?.prev, duplicate: isSecond[i] })),
  )
}

/** Publishes are carried out and their replies lost, until the connections are cut. */
function loseReplies({ proxy }: FaultyPlace) {
  const silent = new Set<number>()
  let lost = 0
  return {
    get lost() {
      return lost
    },
    begin: () =>
      proxy.onCommand((command): Decision => {
        if (!isPublish(command)) return 'forward'
        lost += 1
        if (silent.has(command.connection)) return 'forward'
        silent.add(command.connection)
        return 'swallow'
      }),
    end() {
      proxy.onCommand()
      proxy.cut()
    },
  }
}

describe('1,000 lost replies', () => {
  const buses = 24
  const callsPerRound = 40 * buses
  const placeOf = (i: number) => (['same bus', 'other bus', 'process'] as const)[Math.floor(i / buses) % 3]

  test('[P08] the reply is lost and the caller retries with the idempotency key, same bus, another bus, another process, with and without key: exactly one event', async () => {
    const place = await faultyPlace()
    const callers = Array.from({ length: buses }, () => place.bus({ publish: { timeout: '150ms' } }))
    const others = Array.from({ length: buses }, () => place.bus())
    const elsewhere = publisher(place)
    await elsewhere.waitForLine('ready')
    // Connected, so that every first try is sent.
    await Promise.all(callers.map((bus) => bus.publish('warm.up', null, { timeout: '20s' })))

    const publish = (bus: Bus, call: Wanted, more: { timeout?: Duration } = {}) =>
      bus.publish(call.type, call.data, { ...optionsOf(call), ...more })
    const firstTry = (call: Wanted, i: number) => publish(callers[i % buses]!, call)
    const retryHere = (call: Wanted, i: number) => {
      if (placeOf(i) === 'process') return undefined
      return publish((placeOf(i) === 'same bus' ? callers : others)[i % buses]!, call, { timeout: '20s' })
    }
    const replies = loseReplies(place)
    const calls: Wanted[] = []
    const answers: Published[] = []
    const codes: string[] = []
    while (replies.lost < 1_000) {
      const round = Array.from({ length: callsPerRound }, (_, i) => wanted(calls.length + i))
      replies.begin()
      codes.push(...(await Promise.all(round.map((call, i) => firstTry(call, i).then(String, ({ code }) => code)))))
      replies.end()
      const there = publishIn(
        elsewhere,
        round.filter((_, i) => placeOf(i) === 'process'),
      )
      const here = await Promise.all(round.map(retryHere))
      const fromThere = await there
      answers.push(...here.map((answer) => answer ?? fromThere.shift()!))
      calls.push(...round)
    }
    // Only so many flushes of a bus are in flight: the calls behind them are told that nothing was stored, truly.
    expect(new Set(codes)).toEqual(new Set(['OUTCOME_UNKNOWN', 'NOT_STORED']))
    const isSecond = codes.map((code) => code === 'OUTCOME_UNKNOWN')
    await expectDuplicatesOf(place, calls, answers, isSecond)
  })
})

describe('one lost reply', () => {
  test('[P08] the bus repeats by itself, then the caller retries too: the same answer, marked as a duplicate', async () => {
    const place = await faultyPlace()
    const bus = place.bus()
    nextPublish(place.proxy, 'drop-reply')
    const call = wanted(1)
    const first = await bus.publish(call.type, call.data, optionsOf(call))
    const second = await bus.publish(call.type, call.data, optionsOf(call))
    expect(first.duplicate).toBe(false)
    expect(second).toEqual({ ...first, duplicate: true })
    await expectDuplicatesOf(place, [call], [second])
  })

  test('[P08] the process that published dies at any point, another one retries: exactly one event', async () => {
    const place = await faultyPlace()
    const [before, unanswered, answered, held] = [wanted(1), wanted(4), wanted(2), wanted(3)]
    const children = {
      before: publisher(place, { FAILPOINT: 'before-publish' }),
      unanswered: publisher(place),
      answered: publisher(place, { FAILPOINT: 'after-answer' }),
      held: publisher(place),
    }
    const other = publisher(place)
    await Promise.all([...Object.values(children), other].map((child) => child.waitForLine('ready')))
    const about = (command: Command, { idempotencyKey }: Wanted) =>
      command.args.some((arg) => arg.includes(`"${idempotencyKey}"`))
    place.proxy.onCommand((command) => {
      if (about(command, unanswered)) return 'swallow'
      return about(command, held) ? 'hold' : 'forward'
    })

    for (const [name, call] of Object.entries({ before, unanswered, answered, held }))
      children[name as keyof typeof children].send(JSON.stringify([[call.type, call.data, optionsOf(call)]]))
    await Promise.all([children.before.hitFailpoint('before-publish'), children.answered.hitFailpoint('after-answer')])
    await eventually(async () => (await place.log()).length === 2 && place.proxy.held.length === 1)
    for (const child of [children.unanswered, children.held]) child.kill('SIGKILL')
    await Promise.all(Object.values(children).map((child) => child.exited))

    place.proxy.onCommand()
    const calls = [before, unanswered, answered, held]
    const answers = await publishIn(other, calls)
    expect(answers.map(({ duplicate }) => duplicate)).toEqual([false, true, true, false])
    place.proxy.release()
    await place.quiet()
    await expectDuplicatesOf(
      place,
      calls,
      answers.map((answer) => ({ ...answer, duplicate: true })),
    )
  })
})
