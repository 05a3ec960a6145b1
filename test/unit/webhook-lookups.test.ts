/** Names that hang take one thread at most, and are not asked for again at once. */
import { expect, test } from 'vitest'
import { HungBefore, Lookups } from '../../src/sinks/webhook/lookups.ts'

function watched() {
  let nowMs = 0
  const running = new Map<string, (error: Error | null, address?: string) => void>()
  const asked: string[] = []
  const lookups = new Lookups(
    (host, _, callback) => {
      asked.push(host)
      running.set(host, (error, address = '8.8.8.8') => {
        running.delete(host)
        callback(error, [{ address, family: 4 }])
      })
    },
    () => nowMs,
  )
  const pass = (ms: number) => {
    nowMs += ms
  }
  /** Someone who has given up when this is over. */
  const hang = async (...hosts: string[]) => {
    const stop = new AbortController()
    const all = hosts.map((host) => lookups.of(host, stop.signal))
    pass(2_000)
    stop.abort(new Error('late'))
    for (const one of await Promise.allSettled(all)) expect(one).toMatchObject({ reason: { message: 'late' } })
  }
  const of = (host: string) => lookups.of(host, new AbortController().signal)
  return { of, hang, pass, running, asked }
}

test('[W15] a name that hung is unresolved until its look-up has ended, and some seconds more', async () => {
  const { of, hang, pass, running, asked } = watched()
  await hang('hangs')
  await expect(of('hangs')).rejects.toThrow(HungBefore)
  running.get('hangs')!(new Error('at last'))
  await new Promise(setImmediate)
  await expect(of('hangs')).rejects.toThrow(HungBefore)
  pass(10_001)
  const answer = of('hangs')
  running.get('hangs')!(null)
  expect(await answer).toEqual([{ address: '8.8.8.8', family: 4 }])
  expect(asked).toEqual(['hangs', 'hangs'])
})

test('[W15] two run at once; of those that hung before one, so that others are answered', async () => {
  const { of, hang, pass, running, asked } = watched()
  await hang('one', 'two', 'waits')
  expect(asked).toEqual(['one', 'two'])
  running.get('one')!(new Error('at last'))
  running.get('two')!(new Error('at last'))
  await new Promise(setImmediate)
  // It had no thread: that says nothing about the name.
  const waits = of('waits')
  running.get('waits')!(null)
  expect(await waits).toHaveLength(1)
  pass(10_001)
  const again = of('one')
  await expect(of('two')).rejects.toThrow(HungBefore)
  const good = of('good')
  running.get('good')!(null)
  expect(await good).toHaveLength(1)
  running.get('one')!(null)
  expect(await again).toHaveLength(1)
})
