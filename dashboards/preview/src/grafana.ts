// What Grafana's page sets up before it draws: the libraries only draw.
import {
  booleanOverrideProcessor,
  dataLinksOverrideProcessor,
  displayNameOverrideProcessor,
  EventBusSrv,
  FieldConfigPropertyItem,
  identityOverrideProcessor,
  LoadingState,
  numberOverrideProcessor,
  standardEditorsRegistry,
  standardFieldConfigEditorRegistry,
  standardTransformers,
  standardTransformersRegistry,
  stringOverrideProcessor,
  thresholdsOverrideProcessor,
  toDataFrame,
  TransformerRegistryItem,
  unitOverrideProcessor,
  valueMappingsOverrideProcessor,
} from "@grafana/data";
import { initPluginTranslations } from "@grafana/i18n";
import {
  config,
  DataSourceSrv,
  setAppEvents,
  setDataSourceSrv,
  setPluginImportUtils,
  setRunRequest,
} from "@grafana/runtime";
import { sceneUtils } from "@grafana/scenes";
import { from, map } from "rxjs";

import { panelPlugins } from "./panels";
import { Prometheus } from "./prometheus";

export async function actAsGrafana(prometheusUrl: string) {
  await initPluginTranslations("grafana");
  await initPluginTranslations("grafana-scenes");
  config.buildInfo = { ...config.buildInfo, version: "13.2.2" };
  document.documentElement.style.colorScheme = config.theme2.colors.mode;

  standardEditorsRegistry.setInit(() => []);
  standardFieldConfigEditorRegistry.setInit(() => [
    property("unit", unitOverrideProcessor),
    property("min", numberOverrideProcessor),
    property("max", numberOverrideProcessor),
    property("fieldMinMax", booleanOverrideProcessor),
    property("decimals", numberOverrideProcessor),
    property("displayName", displayNameOverrideProcessor),
    property("color", identityOverrideProcessor),
    property("noValue", stringOverrideProcessor),
    property("thresholds", thresholdsOverrideProcessor),
    property("mappings", valueMappingsOverrideProcessor),
    property("links", dataLinksOverrideProcessor),
  ]);
  standardTransformersRegistry.setInit(() =>
    // Some have two names there.
    [...new Map(Object.values(standardTransformers).map((transformer) => [transformer.id, transformer])).values()].map(
      (transformation) =>
        ({ ...transformation, transformation: async () => transformation, editor: () => null, imageDark: "", imageLight: "" }) as unknown as TransformerRegistryItem,
    ),
  );

  setAppEvents(new EventBusSrv());
  const prometheus = new Prometheus(prometheusUrl);
  setDataSourceSrv({
    get: async () => prometheus,
    getList: () => [prometheus.settings],
    getInstanceSettings: () => prometheus.settings,
    reload: () => undefined,
  } as unknown as DataSourceSrv);
  setRunRequest((source, request) =>
    from(source.query(request)).pipe(
      map(({ data, errors }) => ({
        state: errors?.length ? LoadingState.Error : LoadingState.Done,
        series: data.map(toDataFrame),
        errors,
        timeRange: request.range,
        request,
      })),
    ),
  );
  setPluginImportUtils({
    importPanelPlugin: async (id) => Promise.reject(new Error(`there is no panel ${id} here`)),
    getPanelPluginFromCache: () => undefined,
  });
  for (const [pluginId, plugin] of Object.entries(panelPlugins)) {
    sceneUtils.registerRuntimePanelPlugin({ pluginId, plugin });
  }
}

function property(id: string, process: FieldConfigPropertyItem["process"]): FieldConfigPropertyItem {
  const shouldApply = () => true;
  return { id, path: id, name: id, editor: () => null, override: () => null, process, shouldApply, settings: {} };
}
