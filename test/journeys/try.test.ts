import { expect, test } from 'vitest'
import { testBus } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'

test('a processor', async () => {
  const bus = testBus({ onTelemetry: (e) => e.level !== 'debug' && console.log(e.name, JSON.stringify(e.fields)) })
  for (let i = 0; i < 500; i += 1) await bus.publish('order.paid', { i }, { key: `k${i % 50}` })
  const seen: number[] = []
  bus.processor('search', { match: 'order.>' }, async (events) => {
    for await (const e of events) seen.push((e.data as { i: number }).i)
  })
  await bus.run({ signals: false })
  await eventually(() => seen.length === 500)
  await bus.publish('order.paid', { i: 500 }, { key: 'k' })
  await eventually(() => seen.length === 501)
  expect(new Set(seen).size).toBe(501)
})
