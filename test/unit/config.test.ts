import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import {
  type Config,
  type ConfigSources,
  describeConfig,
  describeSettings,
  loadConfig,
  type SettingName,
} from '../../src/config.ts'
import { didYouMean } from '../../src/did-you-mean.ts'
import { BusbarError } from '../../src/errors.ts'
import { defaultPartitions, defaultRetention } from '../../src/log/namespace.ts'

let cwd: string
beforeEach(() => {
  cwd = mkdtempSync(join(tmpdir(), 'busbar-config-'))
})
afterEach(() => rmSync(cwd, { recursive: true, force: true }))

const writeFile = (content: unknown, name = 'busbar.config.json') =>
  writeFileSync(join(cwd, name), typeof content === 'string' ? content : JSON.stringify(content))

const load = (sources: Omit<ConfigSources, 'cwd'> = {}) => loadConfig({ ...sources, cwd })

function problemsOf(sources: Omit<ConfigSources, 'cwd'>): string[] {
  try {
    load(sources)
  } catch (error) {
    if (error instanceof BusbarError && error.code === 'SETTING_INVALID') return error.details.problems as string[]
    throw error
  }
  return []
}

const described = (config: Config, name: SettingName) => describeConfig(config).find((row) => row.name === name)

/** One value for each setting that differs from its default, as the environment would give it, and as the config has it. */
const others: Record<
  Exclude<SettingName, 'config'>,
  [given: string, at: (config: Config) => unknown, value: unknown]
> = {
  redis: ['redis://cache:6380/2', (c) => c.redis, 'redis://cache:6380/2'],
  dataDir: ['/var/lib/busbar', (c) => c.dataDir, '/var/lib/busbar'],
  namespace: ['shop', (c) => c.namespace, 'shop'],
  partitions: ['32', (c) => c.partitions, 32],
  'http.host': ['::1', (c) => c.http.host, '::1'],
  'http.port': ['8080', (c) => c.http.port, 8080],
  'http.bodyMaxBytes': ['1MB', (c) => c.http.bodyMaxBytes, 1_000_000],
  'publish.timeout': ['3s', (c) => c.publish.timeoutMs, 3_000],
  'publish.maxWaitingBytes': ['2MiB', (c) => c.publish.maxWaitingBytes, 2_097_152],
  'publish.maxWaiting': ['5', (c) => c.publish.maxWaiting, 5],
  'retention.age': ['1h', (c) => c.retention?.ageMs, 3_600_000],
  'retention.events': ['1000', (c) => c.retention?.events, 1_000],
  'retention.bytes': ['1GiB', (c) => c.retention?.bytes, 2 ** 30],
  liveChannel: ['true', (c) => c.liveChannel, true],
  'webhooks.allow': ['10.0.0.0/8, fd00::/8', (c) => c.webhooks.allow, ['10.0.0.0/8', 'fd00::/8']],
  'webhooks.allowHttp': ['true', (c) => c.webhooks.allowHttp, true],
  'webhooks.development': ['yes', (c) => c.webhooks.development, true],
  'webhooks.concurrency': ['8', (c) => c.webhooks.concurrency, 8],
  'log.level': ['debug', (c) => c.log.level, 'debug'],
}

describe('every setting', () => {
  const byName = new Map(describeSettings().map((setting) => [setting.name, setting]))

  test('is tried here', () => expect(Object.keys(others)).toEqual([...byName.keys()].filter((n) => n !== 'config')))

  test.each(Object.entries(others))('%s can be given by file, environment and flag', (name, [given, at, value]) => {
    const { variable } = byName.get(name as SettingName)!
    expect(at(load())).not.toEqual(value)
    expect(at(load({ env: { [variable]: given } }))).toEqual(value)
    expect(at(load({ flags: { [name]: given } }))).toEqual(value)
    writeFile({ [name]: given })
    const config = load()
    expect(at(config)).toEqual(value)
    expect(described(config, name as SettingName)?.source).toBe('file')
  })
})

test('without anything given, the defaults hold', () => {
  const config = load()
  expect(config).toMatchObject({
    redis: undefined,
    dataDir: join(cwd, '.busbar'),
    namespace: 'busbar',
    partitions: undefined,
    http: { host: '127.0.0.1', port: 7475, bodyMaxBytes: 16 * 2 ** 20 },
    publish: { timeoutMs: 10_000, maxWaitingBytes: 64 * 2 ** 20, maxWaiting: 100_000 },
    retention: undefined,
    liveChannel: false,
    webhooks: { allow: [], allowHttp: false, development: false, concurrency: 64 },
    log: { level: 'info' },
  })
})

test('defaults < file < environment < flags', () => {
  writeFile({ http: { port: 1001, host: 'file' }, namespace: 'file' })
  const env = { BUSBAR_HTTP_PORT: '1002', BUSBAR_HTTP_HOST: 'environment' }
  const config = load({ env, flags: { 'http.port': '1003' } })
  expect(config.http).toMatchObject({ port: 1003, host: 'environment' })
  expect(config.namespace).toBe('file')
  const sources = describeConfig(config).map(({ name, source }) => `${name} ${source}`)
  expect(sources).toEqual(
    expect.arrayContaining(['http.port flag', 'http.host environment', 'namespace file', 'log.level default']),
  )
})

test('the file may nest or dot its names, and use the types of JSON', () => {
  writeFile({ http: { port: 1 }, 'publish.timeout': 1500, retention: { age: '2d' }, liveChannel: true })
  expect(load()).toMatchObject({
    http: { port: 1 },
    publish: { timeoutMs: 1_500 },
    retention: { ageMs: 172_800_000 },
    liveChannel: true,
  })
})

test('the config file is found by flag, then by environment, and must exist when it was named', () => {
  writeFile({ namespace: 'flagged' }, 'a.json')
  writeFile({ namespace: 'surrounding' }, 'b.json')
  writeFile({ namespace: 'usual' })
  expect(load({ flags: { config: 'a.json' }, env: { BUSBAR_CONFIG: 'b.json' } }).namespace).toBe('flagged')
  expect(load({ env: { BUSBAR_CONFIG: join(cwd, 'b.json') } }).namespace).toBe('surrounding')
  expect(load().namespace).toBe('usual')
  expect(problemsOf({ flags: { config: 'missing.json' } })).toEqual([expect.stringMatching(/missing\.json.*ENOENT/)])
})

test('partitions and retention are left to what is stored unless someone sets them', () => {
  expect(describeConfig(load())).toContainEqual({
    name: 'partitions',
    value: '(what is stored, else 16)',
    source: 'default',
  })
  const { retention } = load({ flags: { 'retention.events': '500' } })
  expect(retention).toEqual({ ...defaultRetention, events: 500 })
})

test('the defaults said here are those that a new namespace gets', () => {
  const said = Object.fromEntries(describeSettings().map((setting) => [setting.name, setting.default]))
  expect(said.partitions).toBe(`what is stored, else ${defaultPartitions}`)
  expect(said['retention.age']).toBe(`what is stored, else ${defaultRetention.ageMs / 86_400_000}d`)
  expect(said['retention.events']).toBe(`what is stored, else ${defaultRetention.events}`)
  expect(load({ flags: { 'retention.age': '7d' } }).retention).toEqual(defaultRetention)
})

test('a config cannot be changed', () => {
  const config = load()
  expect(() => Object.assign(config.http, { port: 1 })).toThrow(TypeError)
  expect(() => Object.assign(config, { namespace: 'other' })).toThrow(TypeError)
  expect(Object.isFrozen(config.effective['http.port'])).toBe(true)
})

describe('problems', () => {
  test('all come at once, each with what is accepted or what was meant', () => {
    writeFile({ htp: { port: 1 }, http: { prt: 1, port: 'eighty' }, nmespace: 'x', retention: 7 })
    const env = { BUSBAR_HTP_PORT: '1', BUSBAR_PARTITIONS: '257', BUSBAR_LOG_LEVEL: 'inof', PATH: '/bin' }
    const problems = problemsOf({
      env,
      flags: { 'publish.timeout': '10 sec', namespace: 'Shop!', liveChannel: 'ture' },
    })
    expect(problems).toEqual([
      'Unknown setting in the config file: "htp.port"; did you mean http.port?',
      'Unknown setting in the config file: "http.prt"; did you mean http.port?',
      'Unknown setting in the config file: "nmespace"; did you mean namespace?',
      expect.stringMatching(/^Unknown setting in the config file: "retention"; /),
      'Unknown environment variable "BUSBAR_HTP_PORT"; did you mean BUSBAR_HTTP_PORT?',
      'http.port in the config file must be a whole number from 0 to 65535; got "eighty".',
      'BUSBAR_PARTITIONS must be a whole number from 1 to 256; got "257".',
      'BUSBAR_LOG_LEVEL must be debug, info, warn or error (did you mean info?); got "inof".',
      '--publish-timeout must be a duration like "250ms", "30s", "5m", "2h" or "7d", or a number of ms; got "10 sec".',
      '--namespace must be 1 to 64 of a-z 0-9 _ -, beginning with a letter or digit; got "Shop!".',
      '--live-channel must be true or false (did you mean true?); got "ture".',
    ])
  })

  test('the message lists them under one code', () => {
    const attempt = () => load({ env: { BUSBAR_PORT: '1', BUSBAR_NAMESPACE: '-' } })
    expect(attempt).toThrow(expect.objectContaining({ code: 'SETTING_INVALID' }))
    expect(attempt).toThrow(/2 settings are not usable:\n {2}- .*\n {2}- /)
  })

  test('a value is refused also where a stronger source overrides it', () => {
    writeFile({ 'http.port': 'x' })
    expect(problemsOf({ flags: { 'http.port': '1' } })).toHaveLength(1)
  })

  test('a name with nothing near it is answered with the known ones', () => {
    expect(problemsOf({ env: { BUSBAR_COLOUR_SCHEME: 'x' } })[0]).toMatch(/known are BUSBAR_CONFIG, BUSBAR_REDIS_URL, /)
    expect(problemsOf({ flags: { zzz: '1' } as never })[0]).toMatch(/Unknown flag "--zzz"; known are --config/)
  })

  test.each([
    ['{"redis": "redis://:hunter2@h", oops}', /is not JSON/],
    ['{\n"http.port": 1,\n}', /is not JSON(, line 3)?/],
    ['[]', /one JSON object/],
    ['null', /one JSON object/],
    ['', /is not JSON/],
    ['{"http.port": null}', /whole number.*got null/],
    ['{"http.port": 1, "http": {"port": 2}}', /"http.port" stands twice/],
    ['{"__proto__": {"port": 1}}', /Unknown setting in the config file: "__proto__\.port"/],
    ['{"http": {}, "htp": {}}', /^Unknown setting in the config file: "htp"/],
    ['{"constructor": 1}', /Unknown setting in the config file: "constructor"/],
    ['{"config": "x.json"}', /Unknown setting in the config file: "config"/],
    ['{"http.port": 1.5}', /whole number/],
    ['{"http.port": -1}', /whole number/],
    ['{"publish.timeout": "25d"}', /from 1ms to 1h; got "25d"/],
    ['{"publish.maxWaitingBytes": "1kB"}', /from 1MiB to 64GiB/],
    ['{"dataDir": ""}', /a path/],
  ])('the file %s is refused', (content, said) => {
    writeFile(content)
    const problems = problemsOf({})
    expect(problems).toEqual([expect.stringMatching(said)])
    expect(problems[0]).not.toContain('hunter2')
  })

  test('a byte order mark is no problem', () => {
    writeFile('\uFEFF{"namespace": "bom"}')
    expect(load().namespace).toBe('bom')
  })
})

describe('the environment', () => {
  test('empty variables count as not set, and those of others are not looked at', () => {
    expect(load({ env: { BUSBAR_REDIS_URL: '', REDIS: 'x', MY_BUSBAR_THING: '1' } }).redis).toBeUndefined()
  })

  test('what Kubernetes says about a service called busbar or busbar-http is passed over', () => {
    const env = {
      BUSBAR_SERVICE_HOST: '10.0.0.7',
      BUSBAR_SERVICE_PORT: '7475',
      BUSBAR_SERVICE_PORT_HTTP: '7475',
      BUSBAR_PORT: 'tcp://10.0.0.7:7475',
      BUSBAR_PORT_7475_TCP: 'tcp://10.0.0.7:7475',
      BUSBAR_PORT_7475_TCP_PROTO: 'tcp',
      BUSBAR_PORT_7475_TCP_ADDR: '10.0.0.7',
      BUSBAR_HTTP_SERVICE_HOST: '10.0.0.8',
      BUSBAR_HTTP_PORT: 'tcp://10.0.0.8:80',
      BUSBAR_HTTP_PORT_80_TCP_PORT: '80',
    }
    expect(load({ env }).http.port).toBe(7475)
  })
})

describe('the Redis URL', () => {
  test.each([
    'redis://localhost',
    'redis://10.0.0.1:6380/3',
    'redis://[::1]:6379',
    'rediss://user:p%40ss@cache.example:6380',
    'unix:///run/redis.sock',
    'unix:///run/redis.sock?db=2',
  ])('%s is accepted', (url) => expect(load({ flags: { redis: url } }).redis).toBe(url))

  test('redis+unix is another spelling of unix', () => {
    expect(load({ flags: { redis: 'redis+unix:///run/redis.sock' } }).redis).toBe('unix:///run/redis.sock')
  })

  test.each([
    ['localhost:6379', 'localhost:6379'],
    ['http://:hunter2@localhost', 'http://:***@localhost'],
    ['user:hunter2@localhost:6379', 'user:***@localhost:6379'],
    ['redis://:hunter2@', 'redis://:***@'],
    ['redis://:hun/ter2@localhost', 'redis://:***@localhost'],
    ['redis://:hunter2@localhost/zero', 'redis://:***@localhost/zero'],
    ['redis://:hunter2@localhost:port', 'redis://:***@localhost:port'],
    ['redis://localhost?password=hunter2', 'redis://localhost?password=***'],
    ['redis://:%hunter2@localhost', 'redis://:***@localhost'],
    ['redis://a:hunter2@b@localhost#c', 'redis://a:***@localhost#c'],
    ['unix://', 'unix://'],
    ['', ''],
  ])('%s is refused, its password hidden', (url, shown) => {
    const problems = problemsOf({ flags: { redis: url } })
    expect(problems).toEqual([expect.stringMatching(/^--redis must be redis:\/\/.*, or unix:\/\/\/path/)])
    expect(problems[0]).toContain(`; got ${JSON.stringify(shown)}.`)
  })

  test.each([
    ['redis://:hunter2@cache:6379/1', 'redis://:***@cache:6379/1'],
    ['rediss://app:hunter2@cache', 'rediss://app:***@cache'],
    ['redis://hunter2@cache', 'redis://***@cache'],
    ['redis://app:hun@ter2@cache', 'redis://app:***@cache'],
    ['unix:///run/a@b.sock', 'unix:///run/a@b.sock'],
  ])('%s is shown as %s', (url, value) => {
    const config = load({ env: { BUSBAR_REDIS_URL: url } })
    expect(config.redis).toBe(url)
    expect(described(config, 'redis')).toEqual({ name: 'redis', value, source: 'environment' })
  })
})

test('effective values are shown as people write them', () => {
  const shown = Object.fromEntries(describeConfig(load()).map(({ name, value }) => [name, value]))
  expect(shown).toMatchObject({
    redis: '(an embedded Redis that lives in dataDir)',
    dataDir: '.busbar',
    'http.port': '7475',
    'http.bodyMaxBytes': '16MiB',
    'publish.timeout': '10s',
    'publish.maxWaitingBytes': '64MiB',
    liveChannel: 'false',
  })
})

test('the command line gets its flags from the table', () => {
  expect(describeSettings()).toContainEqual(
    expect.objectContaining({
      name: 'http.bodyMaxBytes',
      flag: '--http-body-max-bytes',
      placeholder: '<size>',
      option: 'httpBodyMaxBytes',
      variable: 'BUSBAR_HTTP_BODY_MAX_BYTES',
    }),
  )
  const boolean = describeSettings().find((setting) => setting.name === 'liveChannel')
  expect(boolean?.placeholder).toBe('[boolean]')
  expect(load({ flags: { liveChannel: true } }).liveChannel).toBe(true)
})

test('did you mean: typing slips, other dress, a forgotten front; nothing when nothing is near', () => {
  const known = ['http.port', 'http.host', 'namespace', 'retention.age']
  expect(didYouMean('htpp.port', known)).toBe('http.port')
  expect(didYouMean('HTTP_PORT', known)).toBe('http.port')
  expect(didYouMean('httpHost', known)).toBe('http.host')
  expect(didYouMean('port', known)).toBe('http.port')
  expect(didYouMean('name-space', known)).toBe('namespace')
  expect(didYouMean('completely-else', known)).toBeUndefined()
  expect(didYouMean('x'.repeat(1_000_000), known)).toBeUndefined()
  expect(didYouMean('', known)).toBeUndefined()
})

test('docs/config.md has exactly the settings of the table', () => {
  const doc = readFileSync(new URL('../../docs/config.md', import.meta.url), 'utf8')
  const rows = doc
    .split('\n')
    .filter((line) => line.startsWith('| `'))
    .map((line) => line.slice(2, -2).split(' | '))
  const wanted = describeSettings().map((s) => [
    `\`${s.name}\``,
    `\`${s.flag}\``,
    `\`${s.variable}\``,
    s.accepts,
    s.default,
    s.secret ? `${s.sentence} Its password is never shown.` : s.sentence,
  ])
  expect(rows).toEqual(wanted)
})
