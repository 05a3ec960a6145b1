/** What was dropped for memory is told once, in chunks, and kept in bounds until then. */
import { describe, expect, test } from 'vitest'
import { BusbarError } from '../../src/errors.ts'
import { readMemory } from '../../src/memory-guard.ts'
import { type Dropped, DroppedNews } from '../../src/memory-news.ts'
import { createTelemetry, type TelemetryEvent } from '../../src/runtime/telemetry.ts'

function newsroom() {
  const events: TelemetryEvent[] = []
  const told: { key: string; dropped: readonly Dropped[] }[] = []
  const asked: string[] = []
  let failure: Error | undefined
  let keys = 0
  const news = new DroppedNews({
    telemetry: createTelemetry(() => 0, [(event) => events.push(event)]),
    newKey: () => {
      keys += 1
      return `key ${keys}`
    },
    announce: async (dropped, key) => {
      asked.push(key)
      if (failure) throw failure
      told.push({ key, dropped })
    },
  })
  const fails = (error: Error | undefined) => {
    failure = error
  }
  return { news, events, told, asked, fails }
}

const of = (tenant: string, items = 1): Dropped => ({ kind: 'queue', name: 'jobs', tenant, items, bytes: 10 * items })

describe('DroppedNews', () => {
  test('what is dropped of one backlog is one entry', async () => {
    const { news, told } = newsroom()
    for (const one of [of('a', 2), of('b'), of('a', 3), { ...of('a', 1), letters: true as const }]) news.add(one)
    await news.tell()
    expect(told).toEqual([{ key: 'key 1', dropped: [of('a', 5), of('b'), { ...of('a'), letters: true }] }])
    await news.tell()
    expect(told).toHaveLength(1)
  })

  test('a chunk keeps its key and what is in it until it is answered; its failure is said once', async () => {
    const { news, events, told, asked, fails } = newsroom()
    fails(new Error('lost'))
    news.add(of('a'))
    await news.tell()
    news.add(of('a'))
    await news.tell()
    fails(undefined)
    await news.tell()
    expect(asked).toEqual(['key 1', 'key 1', 'key 1', 'key 2'])
    expect(told.map(({ dropped }) => dropped)).toEqual([[of('a')], [of('a')]])
    expect(events).toMatchObject([{ name: 'memory.untold', fields: { willRepeat: true } }])
  })

  test('what can never be told is given up, and said', async () => {
    const { news, events, asked, fails } = newsroom()
    fails(BusbarError.of('EVENT_TOO_LARGE', { bytes: 2, maxBytes: 1 }))
    news.add(of('a'))
    await news.tell()
    await news.tell()
    expect(asked).toEqual(['key 1'])
    expect(events).toMatchObject([{ name: 'memory.untold', fields: { willRepeat: false } }])
  })

  test('many backlogs go in chunks; beyond a thousand they are one entry', async () => {
    const { news, told } = newsroom()
    for (let i = 0; i < 1_500; i += 1) news.add(of(`tenant-${i}`))
    await news.tell()
    const all = told.flatMap(({ dropped }) => dropped)
    expect(Math.max(...told.map(({ dropped }) => dropped.length))).toBe(50)
    expect(all).toHaveLength(1_001)
    expect(all.at(-1)).toEqual({ kind: 'queue', name: '', items: 500, bytes: 5_000 })
  })
})

test('memory counts as Redis counts it when it refuses', () => {
  const info = 'used_memory:1000\r\nmaxmemory:2000\r\nmem_not_counted_for_evict:300\r\n'
  expect(readMemory(info, 5)).toEqual({ used: 700, limit: 2_000 })
  expect(readMemory('used_memory:1000\r\nmaxmemory:0\r\n', 5)).toEqual({ used: 1_000, limit: 5 })
})
