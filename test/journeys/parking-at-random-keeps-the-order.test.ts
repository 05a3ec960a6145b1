/** Objects that are parked, resumed and parked again while events keep coming: each keeps its order, nothing is lost. */
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { randomFrom } from '../faults/storm.ts'
import { testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { firstTimes } from '../support/stream-workers.ts'

test.each([
  ['one by one', undefined],
  ['several at once', 6],
])(
  '[S12] park at random, %s: every object in order, nothing lost, nothing left on a shelf',
  async (_name, concurrency) => {
    const random = randomFrom(12)
    const bus = testBus({ partitions: 2 })
    const keys = Array.from({ length: 12 }, (_, k) => `k${k}`)
    const done: { key: string; n: number }[] = []
    let trouble = 0.1
    const handle = async (key: string, n: number) => {
      if (random.float() < 0.3) await sleep(1)
      if (random.float() < trouble) throw new Error('by chance')
      done.push({ key, n })
    }
    const options = { match: 'job.>', onPoison: 'park', retry: { attempts: 1 } } as const
    if (concurrency === undefined)
      bus.processor('jobs', options, async (events) => {
        for await (const { key, data } of events) await handle(key!, (data as { n: number }).n)
      })
    else bus.processor('jobs', { ...options, concurrency }, ({ key, data }) => handle(key!, (data as { n: number }).n))
    await bus.run({ signals: false })

    let resuming = true
    const resumer = (async () => {
      while (resuming) {
        for (const { object } of await bus.streams.parked.list('jobs'))
          if (random.float() < 0.7) await bus.streams.parked.resume('jobs', object)
        await sleep(random.below(8))
      }
    })()
    const rounds = 60
    for (let n = 0; n < rounds; n += 1) {
      await Promise.all(keys.map((key) => bus.publish('job.run', { n }, { key })))
      await sleep(random.below(12))
    }
    trouble = 0
    await eventually(() => new Set(done.map(({ key, n }) => `${key} ${n}`)).size === keys.length * rounds)
    await eventually(async () => (await bus.streams.parked.list('jobs')).length === 0)
    resuming = false
    await resumer
    const inOrder = Array.from({ length: rounds }, (_, n) => n)
    for (const [key, numbers] of firstTimes(done)) expect(numbers, key).toEqual(inOrder)
    // Nobody died: nothing was handled twice.
    expect(done.length).toBe(keys.length * rounds)
  },
)
