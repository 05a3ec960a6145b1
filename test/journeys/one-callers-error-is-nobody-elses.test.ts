import { describe, expect, test } from 'vitest'
import type { Published } from '../../src/publish/call.ts'
import { plainRedis, testBus } from '../support/bus.ts'
import { expectUnbrokenChains, storedEvents, tagsOf } from '../support/stored.ts'

type Outcome = Published | string

async function outcomes(calls: Promise<Published | Published[]>[]): Promise<(Outcome | Published[])[]> {
  const settled = await Promise.allSettled(calls)
  return settled.map((each) => (each.status === 'fulfilled' ? each.value : each.reason.code))
}

describe('coalesced publishes', () => {
  test('[P23] conflict, duplicate, reused and over-limit answer their own callers; the rest is stored in order', async () => {
    const bus = testBus({ partitions: 1 })
    const first = await bus.publish('a.b', 'first', { key: 'k', idempotencyKey: 'first' })
    const good = (n: number) => bus.publish('a.b', n, { key: 'k' })
    // All of one tick: they go to Redis in one flush.
    const answers = await outcomes([
      good(0),
      bus.publish('a.b', 'stale', { key: 'k', expectPrev: first.seq }),
      good(1),
      bus.publish('a.b', 'first', { key: 'k', idempotencyKey: 'first' }),
      bus.publish('a.b', 'other', { key: 'k', idempotencyKey: 'first' }),
      good(2),
      bus.publish('a.b', 'x'.repeat(300_000), { key: 'k' }),
      bus.publish('not a type', 1, { key: 'k' }),
      bus.commit(
        'k',
        [
          ['a.b', 3],
          ['a.b', 4],
        ],
        { state: 'no', expectPrev: 1 },
      ),
      bus.commit(
        'k',
        [
          ['a.b', 5],
          ['a.b', 6],
        ],
        { state: 'yes' },
      ),
      bus.publish('a.b', 'twice', { key: 'other', idempotencyKey: 'twice' }),
      bus.publish('a.b', 'twice', { key: 'other', idempotencyKey: 'twice' }),
      bus.publish('a.b', 'thrice', { key: 'other', idempotencyKey: 'twice' }),
      bus.publish('a.b', 'no such head', { key: 'none', expectPrev: 5 }),
      good(7),
    ])
    const kinds = answers.map((answer) => {
      if (typeof answer === 'string') return answer
      return [answer]
        .flat()
        .map(({ duplicate }) => (duplicate ? 'duplicate' : 'stored'))
        .join()
    })
    expect(kinds).toEqual([
      'stored',
      'CONFLICT',
      'stored',
      'duplicate',
      'IDEMPOTENCY_KEY_REUSED',
      'stored',
      'EVENT_TOO_LARGE',
      'EVENT_INVALID',
      'CONFLICT',
      'stored,stored',
      'stored',
      'duplicate',
      'IDEMPOTENCY_KEY_REUSED',
      'CONFLICT',
      'stored',
    ])
    expect(answers[3]).toEqual({ ...first, duplicate: true })
    expect(answers[11]).toEqual({ ...(answers[10] as Published), duplicate: true })

    const redis = plainRedis()
    const [tag] = await tagsOf(redis, bus.namespace)
    expect(await redis.xlen(`${bus.namespace}:{${tag}}:log`)).toBe(2)
    const stored = await storedEvents(redis, bus.namespace)
    expect(stored.map(({ json }) => JSON.parse(json))).toEqual(['first', 0, 1, 2, 5, 6, 'twice', 7])
    expectUnbrokenChains(stored)
    const told = answers.flat().filter((answer) => typeof answer !== 'string' && !answer.duplicate) as Published[]
    expect(told.map(({ id, prev }) => ({ id, prev }))).toEqual(stored.slice(1).map(({ id, prev }) => ({ id, prev })))
    expect(await bus.state('k')).toBe('yes')
  })

  test('[P23] each decision sees what the calls before it in the same flush have left', async () => {
    const bus = testBus({ partitions: 1 })
    const created = await outcomes([
      bus.publish('a.b', 1, { key: 'k', expectPrev: null }),
      bus.publish('a.b', 2, { key: 'k', expectPrev: null }),
      bus.publish('a.b', 3, { key: 'l', expectPrev: null }),
    ])
    expect(created.map((answer) => (typeof answer === 'string' ? answer : 'stored'))).toEqual([
      'stored',
      'CONFLICT',
      'stored',
    ])
    const refused = await Promise.allSettled([bus.publish('a.b', 4, { key: 'k', expectPrev: null })])
    expect(refused[0]).toMatchObject({ reason: { details: { head: (created[0] as Published).seq } } })
  })

  test('[P23] a flush of nothing but refused calls, and the next one, are answered right', async () => {
    const bus = testBus({ partitions: 1 })
    const { seq } = await bus.publish('a.b', 0, { key: 'k' })
    for (let round = 0; round < 5; round += 1) {
      const stale = Array.from({ length: 20 }, () => bus.publish('a.b', 1, { key: 'k', expectPrev: 1 }))
      expect(await outcomes(stale)).toEqual(Array(20).fill('CONFLICT'))
    }
    expect(await bus.publish('a.b', 2, { key: 'k', expectPrev: seq })).toMatchObject({ prev: seq })
  })

  test('[P23] random mixes: every caller is told what is in the log', async () => {
    const bus = testBus({ partitions: 2 })
    const redis = plainRedis()
    const heads = new Map<string, number>()
    const answered: Published[] = []
    let calls = 0
    for (let round = 0; round < 40; round += 1) {
      const mix = Array.from({ length: 30 }, (_, i) => {
        calls += 1
        const key = `k${(round + i) % 4}`
        const pick = (round * 7 + i * 13) % 5
        if (pick === 0) return bus.publish('a.b', calls, { key, expectPrev: heads.get(key) ?? null })
        if (pick === 1) return bus.publish('a.b', i % 3, { key, idempotencyKey: `${i % 6}` })
        if (pick === 2)
          return bus.commit(
            key,
            [
              ['a.b', calls],
              ['a.c', calls],
            ],
            { expectPrev: heads.get(key) ?? null, state: calls },
          )
        return bus.publish('a.b', calls, { key })
      })
      for (const answer of (await outcomes(mix)).flat()) {
        if (typeof answer === 'string') expect(['CONFLICT', 'IDEMPOTENCY_KEY_REUSED']).toContain(answer)
        else if (!answer.duplicate) answered.push(answer)
      }
      for (const event of await storedEvents(redis, bus.namespace)) heads.set(event.key!, event.seq)
    }
    const stored = await storedEvents(redis, bus.namespace)
    expectUnbrokenChains(stored)
    const place = ({ id, prev }: { id: string; prev: number | null }) => `${id} after ${prev}`
    expect(answered.map(place).sort()).toEqual(stored.map(place).sort())
  })
})
