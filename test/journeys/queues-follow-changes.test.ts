/** What another process puts, changes or removes is followed by those that run, also when no hint reaches them. */
import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import type { Pattern } from '../../src/pattern.ts'
import { freshNamespace, redisUrl, testBus, urlWithoutHints } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { quickGroup } from '../support/workers.ts'

const followMs = 1_500

describe.each([
  ['with hints', async () => redisUrl()],
  ['without hints', urlWithoutHints],
])('what runs, %s', (_, urlOf) => {
  test('[Q35] follows a put, a change and a removal by another process within 1.5 s', async () => {
    const namespace = freshNamespace()
    const redis = await urlOf()
    const running = testBus({ namespace, redis }) as Bus
    const seen: string[] = []
    running.queue('work', { match: 'work.*', retry: { backoff: ['1h', '1h'] } }).work((event, { attempt }) => {
      seen.push(`${event.type} ${attempt}`)
      if (event.type === 'work.fails' && attempt === 1) throw new Error('once')
    })
    await running.run({ signals: false })
    const other = testBus({ namespace }) as Bus
    const has = async (queue: string) => (await other.queues.get(queue)).in
    const within = (check: () => unknown) =>
      eventually(check as () => Promise<boolean>, { timeoutMs: followMs + 500, everyMs: 10 })

    // Put: what is published after the answer enters.
    await other.queues.put('mail', { match: 'mail.*' })
    await other.publish('mail.sent', 1)
    await within(async () => (await has('mail')) === 1)

    // Changed: routers by the new pattern, workers by the new policy.
    await other.queues.put('mail', { match: 'sms.*' })
    await other.publish('mail.sent', 2)
    await other.publish('sms.sent', 3)
    await within(async () => (await has('mail')) === 2)
    await other.queues.put('work', { match: ['work.*', 'extra.*'], retry: { backoff: [1, 1] } })
    await new Promise((resolve) => setTimeout(resolve, followMs))
    await other.publish('work.fails', 4)
    await within(() => seen.includes('work.fails 2'))
    await other.publish('extra.done', 5)
    await within(() => seen.includes('extra.done 1'))

    // Removed: nothing enters, and nobody breaks.
    await other.queues.remove('mail')
    await other.publish('sms.sent', 6)
    await other.publish('work.done', 7)
    await within(() => seen.includes('work.done 1'))
    await expect(other.queues.get('mail')).rejects.toMatchObject({ code: 'QUEUE_NOT_FOUND' })
  })
})

test('[Q44] hints switched off: 1,000 × (subscribe, publish) and (change, publish): all delivered, by the new pattern', async () => {
  const namespace = freshNamespace()
  const redis = await urlWithoutHints()
  const routers = [0, 1].map(() => testBus({ namespace, redis, group: quickGroup }) as Bus)
  for (const router of routers) await router.run({ signals: false })
  const other = testBus({ namespace, redis }) as Bus
  const count = 1_000
  const published = new Map<number, string>()
  const all = async (one: (n: number) => Promise<void>) => {
    for (let n = 0; n < count; n += 25) await Promise.all(Array.from({ length: 25 }, (__, i) => one(n + i)))
  }
  const put = (n: number, match: Pattern) => other.queues.put(`q${n}`, { match })
  const publish = async (n: number, type: string) =>
    void published.set(n, (await other.publish(`${type}.n${n}`, n, { key: `q${n}` })).id)
  const allHaveIt = () =>
    eventually(
      async () => {
        const missing = []
        for (const [n, id] of published) {
          const has = await other.queues.peek(`q${n}`)
          if (has.at(-1)?.id !== id) missing.push(n)
          else published.delete(n)
        }
        return missing.length === 0
      },
      { timeoutMs: 20_000, everyMs: 100 },
    )
  await all(async (n) => {
    await put(n, `first.n${n}`)
    await publish(n, 'first')
  })
  await allHaveIt()
  await all(async (n) => {
    await put(n, `second.n${n}`)
    await other.publish(`first.n${n}`, n, { key: `q${n}` })
    await publish(n, 'second')
  })
  await allHaveIt()
  for (let n = 0; n < count; n += 1) expect((await other.queues.get(`q${n}`)).in).toBe(2)
}, 60_000)
