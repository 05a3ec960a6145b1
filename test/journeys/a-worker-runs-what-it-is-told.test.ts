import { join } from 'node:path'
import { expect, test } from 'vitest'
import { appFolder } from '../support/app.ts'
import { redisUrl, testBus } from '../support/bus.ts'
import { startCli } from '../support/cli.ts'

const processor = (name: string): string =>
  `bus.processor('${name}', { match: '>', from: 'beginning' }, async (events) => {
  for await (const e of events) console.log('${name}', e.id)
})`

const bus = `import { busbar } from 'busbar'
export const bus = busbar({ redis: process.env.APP_REDIS, namespace: process.env.APP_NAMESPACE })`

test('[S18] modules by path and by pattern, named processors only', async () => {
  const publisher = testBus()
  const folder = appFolder({
    'app.ts': [bus, processor('search'), processor('billing')].join('\n'),
    'jobs/mail.ts': [bus, processor('mail')].join('\n'),
    'jobs/tax.ts': [bus, processor('tax')].join('\n'),
  })
  const before = await publisher.publish('order.placed', 1)
  const env = { APP_REDIS: redisUrl(), APP_NAMESPACE: publisher.namespace }
  const worker = startCli(['worker', join(folder, 'app.ts'), `${folder}/jobs/*.ts`, '--only', 'search,mail'], env)
  await worker.waitForLine(`search ${before.id}`)
  await worker.waitForLine(`mail ${before.id}`)
  expect(worker.stdout.filter((line) => line.startsWith('  Runs')).sort()).toEqual([
    '  Runs       mail',
    '  Runs       search',
  ])
  const after = await publisher.publish('order.paid', 2)
  await worker.waitForLine(`search ${after.id}`)
  await worker.waitForLine(`mail ${after.id}`)
  worker.kill('SIGTERM')
  expect(await worker.exited).toEqual({ code: 0, signal: null })
  expect(worker.stdout.filter((line) => /^(billing|tax)/.test(line))).toEqual([])
})
